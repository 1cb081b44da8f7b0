#include "guard.hpp"

#include <algorithm>

namespace quadrat {

Guard::Guard(const py::tuple& facts) {
    checks_.reserve(facts.size());
    for (const py::handle item : facts) {
        const auto fact = py::reinterpret_borrow<py::tuple>(item);
        checks_.push_back({static_cast<Fact>(fact[0].cast<int>()), fact[1], fact[2], fact[3]});
        const Check& check = checks_.back();
        if ((check.fact == Fact::entry || check.fact == Fact::absent) && !PyDict_CheckExact(check.object.ptr())) {
            throw py::type_error("a guard looks at entries of plain dicts");
        }
    }
}

bool Guard::holds() const {
    return std::all_of(checks_.begin(), checks_.end(), [](const Check& check) { return holds(check); });
}

bool Guard::holds(const Check& check) {
    PyObject *const object = check.object.ptr(), *const key = check.key.ptr(), *const expected = check.expected.ptr();
    bool same = false;
    switch (check.fact) {
        case Fact::type:
            return reinterpret_cast<PyObject*>(Py_TYPE(object)) == expected;
        case Fact::entry:
            same = PyDict_GetItemWithError(object, key) == expected;
            break;
        case Fact::absent:
            same = PyDict_Contains(object, key) == 0;
            break;
        case Fact::attribute:
            same = py::reinterpret_steal<py::object>(PyObject_GetAttr(object, key)).ptr() == expected;
            break;
        case Fact::items: {
            const Py_ssize_t size = PyTuple_GET_SIZE(expected);
            same = PyList_CheckExact(object) && PyList_GET_SIZE(object) == size;
            for (Py_ssize_t i = 0; same && i < size; ++i) {
                same = PyList_GET_ITEM(object, i) == PyTuple_GET_ITEM(expected, i);
            }
            break;
        }
        case Fact::call: {
            const auto result = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(object));
            same = result && PyObject_RichCompareBool(result.ptr(), expected, Py_EQ) == 1;
            break;
        }
    }
    if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();  // a fact that cannot be looked at does not hold
        return false;
    }
    return same;
}

}  // namespace quadrat
