// A flattened batch: what Python has decided on, carried out in one call.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

#include "columns.hpp"

namespace quadrat {

namespace py = pybind11;

// What a step makes of its column. Mirrored in python/quadrat/ingest.py.
enum class FlatAction : std::uint8_t {
    join,       // its rows, one after the other
    shift,      // the same, with the separator in place of the first token of each row, which an empty row gets too
    positions,  // where in its row each token stands
    sequences,  // which row each token belongs to
    bounds,     // where the rows begin, and where the last one ends
    longest,    // the length of its longest row, an int
    derive,     // labels from the ids that an earlier step has joined, see Labels
};

struct FlatStep {
    py::object name;
    std::size_t index;
    FlatAction action;
    Kind kind;
};

// From tuples (name, index, action, kind).
std::vector<FlatStep> parse_flat_steps(const py::tuple& steps);

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
