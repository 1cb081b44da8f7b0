// Arrays of int64 for functions that are called once an epoch: pybind11 checks their type, and each function their
// size.
#pragma once

#include <pybind11/numpy.h>

#include "../../kernels/watch.hpp"
#include "../casters.hpp"

namespace quadrat {

using Ints = py::array_t<std::int64_t, py::array::c_style>;

// Another type, or an array that is not contiguous, raises TypeError: results are not written to a converted copy.
inline py::arg array_arg(const char* name) { return py::arg(name).noconvert(); }

inline Span<const std::int64_t> span_of(const Ints& array) { return {array.data(), array.size()}; }
inline Span<std::int64_t> span_to(Ints& array) { return {array.mutable_data(), array.size()}; }

// Ends a kernel, with or without the GIL, where a signal handler raises, as that of Ctrl-C does.
inline void look_for_signals() {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) {
        throw py::error_already_set();
    }
}

inline void require_size(const Ints& array, std::int64_t size, const char* name) {
    if (array.size() != size) {
        throw py::value_error(std::string(name) + " must have " + std::to_string(size) + " numbers, not " +
                              std::to_string(array.size()));
    }
}

}  // namespace quadrat
