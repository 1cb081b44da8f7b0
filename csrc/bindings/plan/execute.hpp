// A plan carried out: each action is a shape and a write, wherever the output is to go.
#pragma once

#include "../input/columns.hpp"
#include "plan.hpp"

namespace quadrat {

// The outputs of one batch. Columns, plan and layout must outlive it.
class Execution {
public:
    Execution(const Columns& columns, const Plan& plan, const BatchLayout& layout);

    // Whether a step writes to an output of its own; the others are Python objects, see `object`.
    static bool writes(const Step& step);
    py::object object(const Step& step) const;
    // What a step that writes is given to write to.
    Output output(const Step& step) const;
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
    // Prompts and completions.
    std::int64_t longest_chain(std::size_t index) const;
    const std::vector<std::int64_t>& chains(std::size_t index) const;
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
    // Where the places of sequences of these lengths begin, and where the last one ends: with the output. Until the
    // next call.
    const std::vector<std::int64_t>& places(const std::vector<std::int64_t>& lengths, std::int64_t extent) const;

    const Columns& columns_;
    const Plan& plan_;
    const BatchLayout& layout_;
    const Step* user_ = nullptr;  // the first step that is made from the output of another
    const Step* ids_ = nullptr;
    std::int64_t* ids_data_ = nullptr;          // once they are written
    mutable std::vector<std::int64_t> chains_;  // of the column `chained_`
    mutable std::size_t chained_ = 0;
    mutable std::vector<std::int64_t> places_;  // of the lengths `placed_`
    mutable const std::vector<std::int64_t>* placed_ = nullptr;
    std::vector<std::int64_t> documents_;  // their lengths, row after row
    Status documents_status_;
};

// The batch, one output per step, in order: a dict. Where the status is not ok, `failed` is the step it speaks of.
Status execute(const Columns& columns, const Plan& plan, const BatchLayout& layout, const Interop& interop,
               Framework framework, py::object* batch, std::size_t* failed);

}  // namespace quadrat
