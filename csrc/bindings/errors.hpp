// Which Python errors mean "fall back", and which are the user's business at once.
#pragma once

#include <pybind11/pybind11.h>

namespace quadrat {

// Clears the error that is set, if one is, where it says no more than that something cannot be read here: the reference
// then meets it again, and raises it in its own words. KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError and
// the like are thrown on.
inline void clear_error() {
    PyObject* const type = PyErr_Occurred();
    if (type == nullptr) {
        return;
    }
    if (PyErr_GivenExceptionMatches(type, PyExc_Exception) == 0 ||
        PyErr_GivenExceptionMatches(type, PyExc_MemoryError) != 0) {
        throw pybind11::error_already_set();
    }
    PyErr_Clear();
}

}  // namespace quadrat
