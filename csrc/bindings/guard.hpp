// A guard: facts that a decision was taken under, looked at again in a few nanoseconds each. Objects are compared by
// identity, so a fact that no longer holds is seen, and one that merely looks different costs a new decision.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace quadrat {

namespace py = pybind11;

class Guard {
public:
    // Mirrored in python/quadrat/collators/recall.py.
    enum class Fact : std::uint8_t {
        type,       // type(object) is expected
        entry,      // object[key] is expected, of a dict
        absent,     // key is not in object, a dict
        attribute,  // getattr(object, key) is expected
        items,      // object, a list, holds the items of expected, a tuple
        call,       // object() == expected
    };

    // From tuples (fact, object, key, expected).
    explicit Guard(const py::tuple& facts);

    bool holds() const;

private:
    struct Check {
        Fact fact;
        py::object object, key, expected;
    };

    static bool holds(const Check& check);

    std::vector<Check> checks_;
};

}  // namespace quadrat
