// A plan: what a batch is made of, decided once for all batches of a kind. It is carried out by execute.hpp.
#pragma once

#include <tuple>

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
    // Rows may have places longer than they are, see BatchLayout::align_to. Then `bounds` and `longest` speak of the
    // places.
    token_bounds,   // the rows' lengths added up; int32 [rows + 1]
    documents,      // the number of each token's row, from 1 on, and 0 in the padding; int64
    gaps,           // whether a place is padding; bool
    total,          // the length of the flat outputs, an int
    constant,       // what `values` has
    row_positions,  // positions of the tokens of padded rows, 0 in the padding; int64
    // Of prompts and completions, see BatchLayout::completions: the rows of each completion, padded on the right, one
    // completion after the other; int64.
    chain,        // the tokens
    chain_mask,   // their attention mask
    chain_marks,  // which of them are tokens of a completion
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

// Throws ValueError for a number that is not an action.
Plan parse_plan(py::tuple steps, py::dict values);

// How the rows of a batch lie in its outputs.
struct BatchLayout {
    std::int64_t width;        // of padded outputs
    std::int64_t multiple_of;  // to which extents are rounded up
    Side side;                 // on which rows are padded
    py::object separator;      // of flat outputs
    std::int64_t start;        // of the positions in each row
    // Of flat outputs: what the place of each row is a multiple of, 0 where rows have none of their own; the length of
    // all, 0 for what there is; and whether positions go on through the padding, where they are 0 otherwise.
    std::int64_t align_to = 0;
    std::int64_t total = 0;
    bool continue_positions = true;
    // Of multiple choice: how many rows each example has. Outputs are [examples, choices, ...] then, but for the last,
    // which has one number for each example.
    std::int64_t choices = 0;
    // Of chains: how many columns hold completions, and whether the column of a step, before them, holds prompts. A
    // chain is not longer than `total`, if that is not 0.
    std::int64_t completions = 0;
    bool prompts = false;
    bool batched = true;  // whether flat outputs are [1, total], or else [total]
    // The column that has the lengths of the documents in each row; -1: a row is one. Positions, sequences, bounds, the
    // longest and separators are then those of documents.
    std::int64_t seq_lengths = -1;

    bool plain() const { return align_to == 0 && total == 0 && continue_positions; }
    // References to the fields, in the order of the tuples that Python has.
    template <typename Layout>
    static auto fields(Layout& of) {
        return std::tie(of.width, of.multiple_of, of.side, of.separator, of.start, of.align_to, of.total,
                        of.continue_positions, of.choices, of.completions, of.prompts, of.batched, of.seq_lengths);
    }
    // What `layout_of` makes this layout of.
    py::tuple as_tuple() const {
        return std::apply([](const auto&... field) { return py::make_tuple(field...); }, fields(*this));
    }
};

// The layout of a tuple of these fields. Throws ValueError unless multiple_of is positive and the other lengths are not
// negative.
BatchLayout layout_of(const py::tuple& fields);

}  // namespace quadrat
