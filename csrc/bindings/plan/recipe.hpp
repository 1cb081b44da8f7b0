// A recipe: decisions already taken, kept where a batch that needs no new one is collated in a single call. A batch
// arrives after a training step, with cold caches: what counts is the number of objects and functions touched.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "../input/columns.hpp"
#include "../output/allocate.hpp"
#include "guard.hpp"
#include "plan.hpp"

namespace quadrat {

// A number that threads may write at the same time; of two, one counts.
class Count {
public:
    Count() = default;
    Count(const Count& other) : value_(other) {}
    Count& operator=(const Count&) = delete;
    void operator=(int value) { value_.store(value, std::memory_order_relaxed); }
    operator int() const { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<int> value_{0};
};

// How often a decision that failed is tried again. Batches of one kind may fail by what their rows hold: a float among
// ints. After a failure the next batch of this kind goes to the reference at once, after the second failure the next
// three, and so on; a batch that succeeds forgives all.
class Retries {
public:
    // Whether this batch is left to the reference.
    bool skips() {
        const int left = left_;
        left_ = std::max(left - 1, 0);
        return left > 0;
    }
    void failed() {
        const int next = std::min(2 * next_ + 1, most);
        next_ = next;
        left_ = next;
    }
    void succeeded() { next_ = 0; }

private:
    static constexpr int most = 63;
    Count next_, left_;
};

class Recipe {
public:
    // What a batch is read from.
    struct Source {
        py::object names;  // the columns that are read; None: all that the first feature has
        bool bare;         // whether features are the rows of the one column that is read, without mappings
        py::tuple absent;  // columns that the first feature must not have
        py::object main;   // the column to pad by; None where nothing is padded
        py::object plain;  // of multiple choice, the column with one value for each example; else None
    };
    // What becomes of it.
    struct Result {
        Framework framework;
        py::object wrapper;   // the type of a batch, made without a call of its constructor; None: dict
        py::dict attributes;  // that a batch has besides `data`
        py::object deferred;  // what makes a deferred batch, or None
        py::object notice;    // called with the collator when a batch is made, as the reference warns; or None
        bool falls_back;      // whether batches that are known to fall back are left to the reference at once
        bool always;          // whether all do that come as a list or tuple, whatever they hold
    };

    // layout: its width is that of all batches, or -1.
    // facts: what the decisions depend on besides the batch, see Guard.
    Recipe(const py::tuple& facts, py::object interop, Source source, BatchLayout layout, Result result);

    template <typename Visit>
    void traverse(Visit& visit) const {
        guard_.traverse(visit);
        visit(interop_owner_, source_.names, source_.absent, source_.main, source_.plain, layout_.separator,
              result_.wrapper, result_.attributes, result_.deferred, result_.notice);
        for (const Decision& decision : decisions_) {
            visit(decision.names, decision.plan.given, decision.plan.values);
            for (const Step& step : decision.plan.steps) {
                visit(step.name);
            }
        }
    }

    // Whether nothing that the decisions depend on has changed, for the collator that asks, or None.
    bool holds(const py::handle& subject) const { return guard_.holds_for(subject); }
    // This recipe and one more decision, about batches with these columns and this signature: steps, or None to fall
    // back. failed: whether the steps failed for the first such batch. Recipes never change, so that threads may share
    // them; but for how often a decision failed.
    Recipe extended(py::tuple names, const py::bytes& signature, const py::object& steps, py::dict values,
                    bool failed) const;
    // The batch; None when the guard does not hold, no decision is known, or a row does not go as decided.
    // NotImplemented where it is known to fall back.
    py::object run(const py::handle& subject, const py::object& features) const;

private:
    struct Decision {
        py::tuple names;
        std::size_t main;
        std::string signature;
        Plan plan;
        bool falls_back;
        mutable Retries retries;
        bool plain_names;
    };

    py::object wrapped(py::object data) const;
    bool collect(const py::object& features, py::tuple* names, Columns* columns, BatchLayout* layout) const;
    const Decision* find(const py::tuple& names, const Columns& columns, std::int64_t* width) const;

    Guard guard_;
    py::object interop_owner_;
    const Interop* interop_;
    Source source_;
    std::int64_t width_;  // to which rows are padded; -1: to the longest
    BatchLayout layout_;
    Result result_;
    std::vector<Decision> decisions_;
    // Batches in a row that fell back. After `few` of them as many fall back without a look.
    static constexpr int few = 16;
    mutable Count fallen_;
};

}  // namespace quadrat
