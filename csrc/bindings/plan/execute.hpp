// A plan: what a batch is made of, decided once for all batches of a kind. And a plan carried out: each action is a
// shape and a write, wherever the output is to go.
#pragma once

#include <tuple>

#include "../input/columns.hpp"

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
    // With BatchLayout::align_to, `bounds` and `longest` speak of the places of rows, not of the rows.
    token_bounds,   // the rows' lengths added up; int32 [rows + 1]
    documents,      // the number of each token's row, from 1 on, and 0 in the padding; int64
    gaps,           // whether a place is padding; bool
    total,          // the length of the flat outputs, an int
    constant,       // what `values` has
    row_positions,  // where in its document each token of padded rows stands; int64
    // Of prompts and completions, see BatchLayout::completions: the rows of each completion, padded on the right, one
    // completion after the other; int64.
    chain,        // the tokens
    chain_mask,   // their attention mask
    chain_marks,  // which of them are tokens of a completion
    concat,       // its rows, one after the other, however many there are: [tokens of all, ...]
    // Rows of any shapes, padded along some axes; `values` has (fill, axes, number of the column whose width they take
    // where they are as long as its rows). An axis of one element after the first becomes that of the rows, else
    // outputs are [rows, ...].
    pad_axes,
    axes_mask,  // of the elements in that, with the padded axes alone
};

struct Step {
    py::object name;
    std::size_t index;
    Action action;
    Kind kind;
};

struct Plan {
    py::tuple tuples;  // the steps as Python knows them: tuples (name, index, action, kind)
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
    // all, 0 for what there is; and whether positions go on through the padding, where they are `start` otherwise.
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
    py::object ignored;  // of shifted rows: the token in whose place the separator is, too; or None

    bool plain() const { return align_to == 0 && total == 0 && continue_positions; }
    // References to the fields, in the order of the tuples that Python has.
    template <typename Layout>
    static auto fields(Layout& of) {
        return std::tie(of.width, of.multiple_of, of.side, of.separator, of.start, of.align_to, of.total,
                        of.continue_positions, of.choices, of.completions, of.prompts, of.batched, of.seq_lengths,
                        of.ignored);
    }
    // What `layout_of` makes this layout of.
    py::tuple as_tuple() const {
        return std::apply([](const auto&... field) { return py::make_tuple(field...); }, fields(*this));
    }
};

// The layout of a tuple of these fields. Throws ValueError where a length is negative, or multiple_of not positive.
BatchLayout layout_of(const py::tuple& fields);

// The outputs of one batch. Columns, plan and layout must outlive it.
class Execution {
public:
    Execution(const Columns& columns, const Plan& plan, const BatchLayout& layout);

    // Whether a step writes to an output of its own; the others are Python objects, see `object`.
    static bool writes(const Step& step);
    py::object object(const Step& step) const;
    // What a step that writes is given to write to; all of these.
    Output output(const Step& step) const;
    std::vector<Output> outputs() const;
    // Writes the output of a step; extent: see Output. Ids come before what is made from them.
    Status write(const Step& step, std::int64_t extent, void* out);
    // The step that makes labels, and the one whose ids they, or shifted rows, are made from; null: there is none.
    const Step* labels() const { return user_ != nullptr && user_->action == Action::labels ? user_ : nullptr; }
    const Step* ids() const { return ids_; }
    // How many elements of a flat output are tokens; the rest is padding.
    std::int64_t filled(const Step& step) const;
    // The lengths of what positions and bounds tell apart: rows, or the documents in them.
    const std::vector<std::int64_t>& sequences(const Column& column) const {
        return layout_.seq_lengths < 0 ? column.lengths : documents_;
    }
    std::int64_t longest(const Column& column) const;
    // Not ok where the documents do not sum to the rows: there are none then.
    Status documents_status() const { return documents_status_; }

private:
    // The output of a step if a token is one element.
    Output in_tokens(const Step& step) const;
    // [rows, extent], or [examples, choices, extent].
    std::vector<std::int64_t> padded(std::int64_t rows, std::int64_t extent) const;
    py::handle value(const Step& step) const { return PyDict_GetItemWithError(plan_.values.ptr(), step.name.ptr()); }
    bool has_ids_for(const Step& step) const { return ids_data_ != nullptr && ids_->index == step.index; }
    Status write_labels(const Step& step, std::int64_t extent, void* out) const;
    // Flat outputs: see placed.cpp.
    Status read_documents();
    Status write_places(const Step& step, std::int64_t extent, void* out) const;
    Status place_rows(const Step& step, std::int64_t extent, void* out) const;
    bool has_room(const Column& column) const;
    Status write_row_positions(const Step& step, std::int64_t extent, std::int64_t* out) const;
    // Rows padded along axes: see axes.cpp.
    struct Blocks;
    Blocks blocks_of(const Step& step) const;
    Trailing shape_along_axes(const Step& step) const;
    Status write_blocks(const Step& step, void* out) const;
    // Prompts and completions.
    std::int64_t longest_chain(std::size_t index) const;
    std::vector<std::int64_t> chains(std::size_t index) const;
    Status place_chains(const Step& step, std::int64_t extent, std::int64_t* out) const;
    Status write_chains(const Step& step, std::int64_t extent, std::int64_t* out) const;
    // The length of the place of a sequence, of all of a column, and of the flat output.
    std::int64_t placed(std::int64_t length) const {
        return layout_.align_to == 0 ? length : round_up(length, layout_.align_to);
    }
    std::int64_t placed(const Column& column) const;
    std::int64_t flat_extent(std::int64_t placed) const {
        return layout_.total != 0 ? layout_.total : round_up(placed, layout_.multiple_of);
    }
    Output flat(std::int64_t placed, Kind kind) const;
    // Where the places of sequences of these lengths begin, and where the output ends. Until the next call.
    const std::vector<std::int64_t>& places(const std::vector<std::int64_t>& lengths, std::int64_t extent) const;

    const Columns& columns_;
    const Plan& plan_;
    const BatchLayout& layout_;
    const Step* user_ = nullptr;  // the first step that is made from the output of another
    const Step* ids_ = nullptr;
    std::int64_t* ids_data_ = nullptr;          // once they are written
    mutable std::vector<std::int64_t> places_;  // of the lengths `placed_`
    mutable const std::vector<std::int64_t>* placed_ = nullptr;
    std::vector<std::int64_t> documents_;  // their lengths, row after row
    Status documents_status_;
};

// The batch, one output per step, in order: a dict. Where the status is not ok, `failed` is the step it speaks of.
Status execute(const Columns& columns, const Plan& plan, const BatchLayout& layout, const Interop& interop,
               Framework framework, py::object* batch, std::size_t* failed);

// A deferred batch: what its outputs are made of, in one buffer, and where; they are made on the device it goes to.

// Bytes that are sent within a message to another process: to pass on a descriptor of shared memory takes longer.
inline constexpr std::int64_t most_in_message = 1 << 19;
inline constexpr std::int64_t alignment = 64;  // bytes: a cache line, and more than any vector load on a GPU

// Makes the object: factory(buffer, steps, places, rows, layout, masking, wrapped).
//
// buffer: a tensor of bytes. places: for each step a tuple, and masking, of ids that are masked where they are padded,
// a tuple or None: see Parts and Masking in python/quadrat/deferred/layout.py. Of packed rows, documents are meant.
// layout: as BatchLayout::as_tuple has it.
struct DeferredFactory {
    py::object make;
    bool wrapped;  // whether the batch is a BatchEncoding
};

// As `execute`, to a buffer: see csrc/bindings/deferred.
Status defer(const Columns& columns, const Plan& plan, const BatchLayout& layout, const Interop& interop,
             const DeferredFactory& factory, py::object* batch, std::size_t* failed);

}  // namespace quadrat
