// A guard: facts that a decision was taken under, looked at again in a few nanoseconds each. Objects are compared by
// identity, so a fact that no longer holds is seen, and one that merely looks different costs a new decision.
#pragma once

#include <algorithm>

#include "../casters.hpp"

namespace quadrat {

// Whether names are plain strings, so that no code of the user's runs when they are looked up or compared.
inline bool plain_names(const py::tuple& names) {
    return std::all_of(names.begin(), names.end(),
                       [](const py::handle& name) { return PyUnicode_CheckExact(name.ptr()); });
}

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
        for (const auto* const checks : {&entries_, &own_, &others_}) {
            for (const Check& check : *checks) {
                visit(check.object, check.key, check.expected);
            }
        }
        for (const WatchedDict& watched : dicts_) {
            visit(watched.dict);
        }
    }

    // For the collator that asks, or None.
    bool holds_for(const py::handle& collator) const;

private:
    struct Check {
        Fact fact;
        py::object object, key, expected;
    };
    // A dict that entries are looked up in, and the version it had when all of them were as expected. Up to
    // CPython 3.11 a dict's version changes with its content: while it has not, its entries need not be looked at.
    struct WatchedDict {
        py::object dict;
        mutable std::uint64_t version;  // written with the GIL held, as everything here
    };

    static bool check(const Check& fact, PyObject* object);
    bool dicts_unchanged(const py::handle& subject) const;

    std::vector<Check> entries_, own_, others_;
    std::vector<WatchedDict> dicts_;
    mutable std::uint64_t subject_version_ = 0;
};

}  // namespace quadrat
