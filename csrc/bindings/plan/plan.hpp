// A plan: what a batch is made of, decided once for all batches of a kind. It is carried out by execute.hpp.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

#include "../casters.hpp"

namespace quadrat {

// What a step makes of its column. Padded outputs are [rows, ...], flat ones [1, tokens of all rows, rounded up].
enum class Action : std::uint8_t {
    pad,        // rows padded to the width of the batch
    pad_own,    // to the column's own longest row, rounded up to a multiple
    stack,      // rows of equal length as they are
    numbers,    // one number per row
    mask,       // the attention mask of its rows
    hold,       // None, a place for what Python puts there
    labels,     // from the ids that an earlier step padded, stacked or joined, see Labels; int64
    join,       // its rows, one after the other
    shift,      // the same, with the separator in place of the first token of each row, which an empty row gets too
    positions,  // where in its row each token stands; int64
    sequences,  // which row each token belongs to; int32
    bounds,     // where the rows begin, and where the last one ends; int32 [rows + 1]
    longest,    // the length of its longest row, an int
};

struct Step {
    py::object name;
    std::size_t index;
    Action action;
    Kind kind;
};

struct Plan {
    py::tuple given;  // the steps as Python knows them: tuples (name, index, action, kind)
    std::vector<Step> steps;
    py::dict values;  // by name: what fills the gaps of an output, or its Labels
};

// Throws ValueError for a number that is no action.
Plan parse_plan(py::tuple steps, py::dict values);

// How the rows of a batch lie in its outputs.
struct Layout {
    std::int64_t width;        // of padded outputs
    std::int64_t multiple_of;  // to which extents are rounded up
    Side side;                 // on which rows are padded
    py::object separator;      // of flat outputs
    std::int64_t start;        // of the positions in each row

    py::tuple as_tuple() const { return py::make_tuple(width, multiple_of, side, separator, start); }
};

// The same layout. Throws ValueError unless multiple_of is positive.
Layout checked(Layout layout);

}  // namespace quadrat
