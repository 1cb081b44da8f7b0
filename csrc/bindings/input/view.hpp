// One Python object seen as a row.
#pragma once

#include "interop.hpp"

namespace quadrat {

// The row in `object`, of as many tokens as `length` says, and its form (see Form); `trailing` are its dimensions after
// the first if that is form_deep, and left alone if not. Anything unknown is form_other with length 0. The row points
// into the object and lives as long as it does.
std::uint32_t view(PyObject* object, const Interop& interop, Row* row, Trailing* trailing);

inline bool is_sequence(const py::handle& object) {
    return PyList_CheckExact(object.ptr()) || PyTuple_CheckExact(object.ptr());
}

// A new reference to sequence[i] of a list or tuple; empty where it has shrunk meanwhile.
py::object item_of(PyObject* sequence, Py_ssize_t i);

// What other threads cannot change: without the GIL, a tuple in place of a list.
py::object as_it_is_now(py::object sequence);

}  // namespace quadrat
