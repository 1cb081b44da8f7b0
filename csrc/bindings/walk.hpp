// The values of a batch of features, block by block, with the misses of cold memory overlapped.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "interop.hpp"

namespace quadrat {

// A batch of features comes cold from the heap: dict, its keys, its values, their buffers, each a miss that waits for
// the one before. Walking a block of rows level by level lets the misses of one level overlap.
class Walk {
public:
    static constexpr Py_ssize_t block = 64;

    Walk(const py::object& features, const Interop& interop) : features_(features), interop_(interop) {}

    // Fills `values` with the block's values, row by row; false when a row lacks a name or the batch has shrunk.
    bool gather(Py_ssize_t first, Py_ssize_t count, const py::tuple& names, std::vector<py::object>* values);

private:
    void look_ahead(const std::vector<py::object>& values);

    const py::object& features_;
    const Interop& interop_;
    std::vector<py::object> rows_;
    std::vector<const char*> parts_;  // of tensors
};

// A new reference to mapping[name], or null with no error set.
PyObject* lookup(PyObject* mapping, PyObject* name);

}  // namespace quadrat
