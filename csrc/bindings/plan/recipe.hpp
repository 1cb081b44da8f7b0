// Recipes: all that is needed to make batches of one form, and the decisions already taken about kinds of them. A batch
// arrives after a training step, with cold caches: what counts is the number of objects and functions touched.
#pragma once

#include <array>
#include <atomic>

#include "execute.hpp"

namespace quadrat {

// A guard: facts that a decision was taken under, looked at again in a few nanoseconds each. Objects are compared by
// identity, so a fact that no longer holds is seen, and one that merely looks different costs a new decision.
class Guard {
public:
    enum class Fact : std::uint8_t {
        type,        // type(object) is expected
        entry,       // object[key] is expected, of a dict
        absent,      // key is not in object, a dict
        attribute,   // getattr(object, key) is expected
        items,       // object, a list, holds the items of expected, a tuple
        call,        // object() == expected
        own,         // key is expected among the attributes of the collator that asks, which the guard must not own
        own_absent,  // key is not among them
        own_set,     // key is among them, a set that is equal to expected
    };

    // From tuples (fact, object, key, expected).
    explicit Guard(const py::tuple& facts);

    void traverse(Visitor& visit) const {
        for (const auto* const checks : {&entries_, &others_}) {
            for (const Check& check : *checks) {
                visit(check.object, check.key, check.expected);
            }
        }
    }

    // For the collator that asks, or None.
    bool holds_for(const py::handle& collator) const;

private:
    struct Check {
        Fact fact;
        py::object object, key, expected;
    };
    // The newest version of the dicts that entries are looked up in, and of the collator's. While these have not
    // changed, no entry needs to be looked at.
    struct Versions {
        std::uint64_t dicts = 0, subject = 0;
    };

    static bool check(const Check& fact, PyObject* object);

    std::vector<Check> entries_, others_;  // the others come first: what their code changes is seen
    bool asks_collator_ = false;
    mutable Versions seen_;  // when all entries were as expected; written with the GIL held
};

// Which batches of one kind are compared with those of the reference, where its code is unknown.
class Comparisons {
public:
    // Counts a batch. True for the first nine, for those whose number is a power of two, and for the first one of each
    // size: the bit lengths of its rows and width, whether a row has one token, a number is below 0, a mask has a 0.
    bool should_compare(const Columns& columns, const py::tuple& names) const;

private:
    mutable std::atomic<std::int64_t> count_{0};
    mutable std::array<std::atomic<std::uint64_t>, 32> seen_{};  // a bit for each size
};

class Recipe {
public:
    // spec: see Spec in planning/plan_cache.py. facts: all that its decisions depend on besides the batch, see Guard.
    // deferred: what makes a deferred batch, or None. compared: whether some batches are compared with the reference's.
    Recipe(py::object spec, const py::tuple& facts, py::object interop, py::object deferred, bool compared);
    ~Recipe();
    Recipe(const Recipe&) = delete;
    Recipe& operator=(const Recipe&) = delete;

    void traverse(Visitor& visit) const {
        guard_.traverse(visit);
        visit(spec_, interop_owner_, names_, optional_, read_, absent_, only_, main_, plain_, layout_.separator,
              layout_.ignored, wrapper_, deferred_, check_, finish_);
        for (const auto& place : decisions_) {
            const Decision* const decision = place.load(std::memory_order_acquire);
            if (decision == nullptr) {
                return;
            }
            visit(decision->names, decision->plan.tuples, decision->plan.values, decision->hold, decision->refusal);
            for (const Step& step : decision->plan.steps) {
                visit(step.name);
            }
        }
    }

    // The batch; a tuple (reason, remedy) where the reference is to make it, and an empty one where the batch is to be
    // compared with the reference's; None for features of another form, or where the facts do not hold for the
    // collator that asks.
    py::object run(const py::object& collator, const py::object& features, bool compares) const;
    // The same without a look at the facts. compares: whether the batch may be one to compare.
    py::object make(const py::object& collator, const py::object& features, bool compares) const;
    // Whether all facts are true for the collator that asks.
    bool holds(const py::object& collator) const { return guard_.holds_for(collator); }

private:
    struct Decision {
        py::tuple names;
        std::string signature;
        Plan plan;
        py::object hold;     // makes the columns that the kernels do not: called with the features; or None
        py::object refusal;  // why the reference makes such batches, or None
        bool plain_names;    // no code of the user's runs when they are looked up or compared
        Comparisons comparisons{};
    };
    // What is measured of columns, once for all decisions.
    struct Measured {
        std::int64_t width;
        std::string signature;
    };

    bool admits(const py::object& features) const;
    // Of columns that were collected. choices: see BatchLayout.
    py::object make_of(const py::object& collator, const py::object& features, const py::tuple& names,
                       const Columns& columns, bool compares, std::int64_t choices) const;
    bool collect(const py::object& features, py::tuple* names, Columns* columns, std::int64_t* choices) const;
    Measured measure(const py::tuple& names, const Columns& columns) const;
    const Decision* find(const py::tuple& names, const std::string& signature) const;
    std::unique_ptr<Decision> decide(const py::object& collator, const py::tuple& names, std::string signature) const;
    void keep(std::unique_ptr<Decision>* decision) const;
    py::object wrapped(py::object data) const;

    Guard guard_;
    py::object spec_, interop_owner_;
    const Interop* interop_;
    py::object names_;    // the columns that are read; None: all that the first feature has
    py::dict optional_;   // more, where any feature has them: whether rows that have none, or None, are left out
    py::dict read_;       // columns that keep the kind of arrays without elements: whether with any strides
    py::tuple absent_;    // columns that the first feature must not have
    py::object only_;     // with names: other columns that the first feature may have; None: any
    py::object main_;     // the column to pad by; None where nothing is padded
    bool bare_;           // whether features are the rows of the one column that is read, without mappings
    py::object plain_;    // of multiple choice, the column with one value for each example; else None
    BatchLayout layout_;  // its width is -1 where batches are as wide as their longest row
    Framework framework_;
    py::object wrapper_;   // an empty batch, of the type and with the attributes that each gets; None: dict
    py::object deferred_;  // what makes a deferred batch, or None
    py::object check_;     // called with the features: why they fall back, or None; or None
    py::object finish_;    // called with the collator, the batch and the features: the batch; or None
    bool compared_;        // whether some batches are compared with the reference's
    // Searched one by one; a data set needs a handful. They are published one by one and stay, so that threads may read
    // while another adds one; what finds no place is decided anew each time.
    mutable std::array<std::atomic<const Decision*>, 64> decisions_{};
};

// The recipes of a collator, for features of different forms: it asks the one that made the last batch first.
class Recipes {
public:
    explicit Recipes(const py::tuple& recipes);

    void traverse(Visitor& visit) const {
        for (const auto& [owner, recipe] : recipes_) {
            visit(owner);
        }
    }

    // compares: whether a batch that is due is left to the caller, see Recipe::run.
    py::object run(const py::object& collator, const py::object& features, bool compares) const;

private:
    std::vector<std::pair<py::object, const Recipe*>> recipes_;
    mutable std::atomic<std::size_t> last_{0};
};

}  // namespace quadrat
