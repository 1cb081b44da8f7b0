// A flattened batch: what Python has decided on, carried out in one call.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "columns.hpp"

namespace quadrat {

namespace py = pybind11;

struct FlatPlan {
    py::tuple steps;  // (name, index, action, kind)
    py::dict values;  // what pads each output after its last row
    std::int64_t multiple_of;
    py::object separator;
    std::int64_t start;  // of the positions in each row
};

// The batch, or a tuple (step, code, row, position) where a step failed.
py::object flatten_batch(const Columns& columns, const FlatPlan& plan, const Interop& interop, Framework framework);

}  // namespace quadrat
