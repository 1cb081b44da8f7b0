#include "execute.hpp"

#include <algorithm>
#include <type_traits>

#include "../../kernels/flat_rows.hpp"
#include "../../kernels/padded_rows.hpp"
#include "../labels/labels.hpp"

namespace quadrat {

Plan parse_plan(py::tuple steps, py::dict values) {
    std::vector<Step> parsed;
    parsed.reserve(steps.size());
    for (const py::handle item : steps) {
        const auto step = py::reinterpret_borrow<py::tuple>(item);
        const int action = step[2].cast<int>();
        if (action < 0 || action > static_cast<int>(Action::axes_mask)) {
            throw py::value_error(message("no action has the number ", action));
        }
        parsed.push_back({step[0], step[1].cast<std::size_t>(), static_cast<Action>(action), step[3].cast<Kind>()});
    }
    return {std::move(steps), std::move(parsed), std::move(values)};
}

BatchLayout layout_of(const py::tuple& fields) {
    BatchLayout layout{};
    std::size_t next = 0;
    const auto read = [&](auto&... field) { ((field = fields[next++].cast<std::decay_t<decltype(field)>>()), ...); };
    std::apply(read, BatchLayout::fields(layout));
    if (layout.multiple_of < 1 || layout.align_to < 0 || layout.total < 0 || layout.choices < 0 ||
        layout.completions < 0) {
        throw py::value_error("multiple_of must be positive, and other lengths not negative");
    }
    return layout;
}

Execution::Execution(const Columns& columns, const Plan& plan, const BatchLayout& layout)
    : columns_(columns), plan_(plan), layout_(layout) {
    for (const Step& step : plan.steps) {
        if (step.action == Action::labels || step.action == Action::shift) {
            user_ = &step;
            break;
        }
    }
    for (const Step* step = plan.steps.data(); user_ != nullptr && step != user_; ++step) {
        const bool makes_rows =
            step->action == Action::pad || step->action == Action::stack || step->action == Action::join;
        ids_ = step->index == user_->index && step->kind == Kind::int64 && makes_rows ? step : ids_;
    }
    documents_status_ = layout.seq_lengths < 0 ? Status() : read_documents();
}

std::int64_t Execution::filled(const Step& step) const {
    const Column& column = columns_.at(step.index);
    const bool shifts = step.action == Action::shift && column.min_length == 0;
    return column.total + (shifts ? std::count(column.lengths.begin(), column.lengths.end(), 0) : 0);
}

bool Execution::writes(const Step& step) {
    return step.action != Action::hold && step.action != Action::longest && step.action != Action::total &&
           step.action != Action::constant;
}

std::vector<std::int64_t> Execution::padded(std::int64_t rows, std::int64_t extent) const {
    using Shape = std::vector<std::int64_t>;
    return layout_.choices == 0 ? Shape{rows, extent} : Shape{rows / layout_.choices, layout_.choices, extent};
}

Output Execution::flat(std::int64_t placed, Kind kind) const {
    const std::int64_t extent = flat_extent(placed);
    return {layout_.batched ? std::vector<std::int64_t>{1, extent} : std::vector<std::int64_t>{extent}, kind};
}

std::vector<Output> Execution::outputs() const {
    std::vector<Output> outputs;
    outputs.reserve(plan_.steps.size());
    for (const Step& step : plan_.steps) {
        if (writes(step)) {
            outputs.push_back(output(step));
        }
    }
    return outputs;
}

Output Execution::output(const Step& step) const {
    Output output = in_tokens(step);
    const Trailing& trailing = columns_.at(step.index).trailing;
    if (!trailing.empty() &&
        (step.action == Action::pad || step.action == Action::pad_own || step.action == Action::stack ||
         step.action == Action::join || step.action == Action::concat)) {
        output.shape.insert(output.shape.end(), trailing.begin(), trailing.end());
        output.trailing = trailing.size();
    }
    return output;
}

Output Execution::in_tokens(const Step& step) const {
    const Column& column = columns_.at(step.index);
    const std::int64_t rows = columns_.count(step.index);
    switch (step.action) {
        case Action::pad:
        case Action::mask:
        case Action::row_positions:
            return {padded(rows, layout_.width), step.kind};
        case Action::stack:
            return {padded(rows, column.max_length), step.kind};
        case Action::pad_own:
            return {padded(rows, round_up(column.max_length, layout_.multiple_of)), step.kind};
        case Action::labels:
            return {ids_ != nullptr && ids_->index == step.index ? in_tokens(*ids_).shape
                                                                 : std::vector<std::int64_t>{rows, 0},
                    Kind::int64};
        case Action::bounds:
        case Action::token_bounds:
            return {{static_cast<std::int64_t>(sequences(column).size()) + 1}, Kind::int32};
        case Action::join:
        case Action::shift:
            return flat(layout_.align_to == 0 ? filled(step) : placed(column), step.kind);
        case Action::positions:
        case Action::documents:
            return flat(placed(column), Kind::int64);
        case Action::sequences:
            return flat(placed(column), Kind::int32);
        case Action::gaps:
            return flat(placed(column), Kind::bool_);
        case Action::chain:
        case Action::chain_mask:
        case Action::chain_marks:
            return {{rows * layout_.completions, round_up(longest_chain(step.index), layout_.multiple_of)}, step.kind};
        case Action::concat:
            return {{column.total}, step.kind};
        case Action::pad_axes:
        case Action::axes_mask:
            return {shape_along_axes(step), step.kind};
        case Action::numbers:
            if (layout_.choices != 0 && &step != &plan_.steps.back()) {
                return {padded(rows, 1), step.kind};
            }
            break;
        case Action::hold:
        case Action::longest:
        case Action::total:
        case Action::constant:
            break;
    }
    return {{rows}, step.kind};
}

Status Execution::write(const Step& step, std::int64_t extent, void* out) {
    Status status = documents_status_;
    if (!status) {
        return status;
    }
    switch (step.action) {
        case Action::pad:
        case Action::pad_own:
        case Action::stack:
            status = columns_.pad(step.index, out, step.kind, extent, layout_.side, value(step));
            break;
        case Action::concat:
            return columns_.flatten(step.index, out, step.kind, extent);
        case Action::pad_axes:
        case Action::axes_mask:
            return write_blocks(step, out);
        case Action::numbers:
            return columns_.numbers(step.index, out, step.kind);
        case Action::mask:
            return columns_.attention_mask(step.index, out, step.kind, extent, layout_.side);
        case Action::labels:
            return write_labels(step, extent, out);
        case Action::join:
        case Action::shift:
            status = place_rows(step, extent, out);
            break;
        case Action::positions:
        case Action::sequences:
        case Action::bounds:
        case Action::documents:
        case Action::gaps:
            return write_places(step, extent, out);
        case Action::token_bounds:
            return cu_seqlens(span_of(sequences(columns_.at(step.index))), static_cast<std::int32_t*>(out));
        case Action::row_positions:
            return write_row_positions(step, extent, static_cast<std::int64_t*>(out));
        case Action::chain:
        case Action::chain_mask:
        case Action::chain_marks:
            return write_chains(step, extent, static_cast<std::int64_t*>(out));
        case Action::hold:
        case Action::longest:
        case Action::total:
        case Action::constant:
            break;
    }
    ids_data_ = &step == ids_ ? static_cast<std::int64_t*>(out) : ids_data_;
    return status;
}

Status Execution::write_labels(const Step& step, std::int64_t extent, void* out) const {
    const py::object how = plan_.values[step.name];
    columns_.invalidate();  // generators, and columns that only labels look at, may be anything
    if (!has_ids_for(step)) {
        return {Code::bad_argument};
    }
    const bool flat = ids_->action == Action::join;
    return how.cast<const Labels&>().write(
        columns_, {step.index, columns_.count(step.index), extent, layout_.side, flat,
                   columns_.at(step.index).lengths.data(), ids_data_, static_cast<std::int64_t*>(out)});
}

Status execute(const Columns& columns, const Plan& plan, const BatchLayout& layout, const Interop& interop,
               Framework framework, py::object* batch, std::size_t* failed) {
    py::dict outputs;
    Execution execution(columns, plan, layout);
    BatchMemory memory(interop, framework, execution.outputs());
    for (*failed = 0; *failed < plan.steps.size(); ++*failed) {
        const Step& step = plan.steps[*failed];
        if (!Execution::writes(step)) {
            outputs[step.name] = execution.object(step);
            continue;
        }
        const std::int64_t extent = memory.next().extent();
        if (layout.choices != 0 && extent == 0) {  // torch does not know the shape of a view without elements
            return {Code::bad_argument};
        }
        Allocation out = memory.take();
        if (const Status status = execution.write(step, extent, out.data); !status) {
            return status;
        }
        outputs[step.name] = std::move(out.array);
    }
    *batch = std::move(outputs);
    return {};
}

}  // namespace quadrat
