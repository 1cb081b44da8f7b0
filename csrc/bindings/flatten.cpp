// A flattened batch in one call: the outputs that Python has decided on, each allocated and written once.
#include "flatten.hpp"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "../kernels/copy_rows.hpp"
#include "../kernels/cu_seqlens.hpp"
#include "../kernels/fill_gaps.hpp"
#include "../kernels/position_ids.hpp"
#include "../kernels/separate_rows.hpp"
#include "../kernels/seq_idx.hpp"
#include "columns.hpp"
#include "decode.hpp"
#include "labels.hpp"
#include "register.hpp"
#include "report.hpp"

namespace quadrat {

std::vector<FlatStep> parse_flat_steps(const py::tuple& steps) {
    std::vector<FlatStep> result;
    result.reserve(steps.size());
    for (const py::handle item : steps) {
        const auto step = py::reinterpret_borrow<py::tuple>(item);
        const int action = step[2].cast<int>();
        if (action < 0 || action > static_cast<int>(FlatAction::derive)) {
            throw py::value_error("no action has the number " + std::to_string(action));
        }
        result.push_back({step[0], step[1].cast<std::size_t>(), static_cast<FlatAction>(action), step[3].cast<Kind>()});
    }
    return result;
}

namespace {

Span<const std::int64_t> span_of(const std::vector<std::int64_t>& values) {
    return {values.data(), static_cast<std::int64_t>(values.size())};
}

Span<const std::int64_t> span_at(std::uintptr_t address, std::int64_t size) {
    if (size < 0) {
        throw py::value_error("a size is negative");
    }
    return {reinterpret_cast<const std::int64_t*>(address), size};
}

// Everything after the first `filled` elements.
Status fill_tail(void* out, Kind kind, std::int64_t filled, std::int64_t out_size, const py::handle& value) {
    if (filled == out_size) {
        return {};
    }
    std::uint64_t element = 0;
    if (!decode_number(value.ptr(), kind, &element)) {
        return {Code::out_of_range};
    }
    return fill_gaps({&filled, 1}, out_size, Side::right, kind, &element, out);
}

class FlatBatch {
public:
    FlatBatch(const Columns& columns, const py::dict& values, const Interop& interop, Framework framework,
              std::int64_t multiple_of, py::handle separator, std::int64_t start)
        : columns_(columns),
          values_(values),
          memory_(interop, framework),
          multiple_of_(multiple_of),
          separator_(separator),
          start_(start),
          joined_(columns.columns.size()) {}

    // To be told of every step before the first is added.
    void expect(const FlatStep& step) {
        if (memory_.shares() && step.action != FlatAction::longest) {
            memory_.expect(output(step));
        }
    }

    Status add(const FlatStep& step) {
        const Column& column = columns_.at(step.index);
        switch (step.action) {
            case FlatAction::join:
                return join(step, column);
            case FlatAction::shift:
                return shift(step, column);
            case FlatAction::positions: {
                const Allocation out = flat(step);
                return position_ids(span_of(column.lengths), start_, static_cast<std::int64_t*>(out.data), size_);
            }
            case FlatAction::sequences: {
                const Allocation out = flat(step);
                return seq_idx(span_of(column.lengths), static_cast<std::int32_t*>(out.data), size_);
            }
            case FlatAction::bounds: {
                const Allocation out = flat(step);
                return cu_seqlens(span_of(column.lengths), Kind::int32, out.data);
            }
            case FlatAction::longest:
                batch[step.name] = py::int_(column.max_length);
                return {};
            case FlatAction::derive: {
                const Row& ids = joined_[step.index];
                const Allocation out = flat(step);
                if (ids.data == nullptr || ids.kind != Kind::int64) {
                    return {Code::bad_argument};
                }
                const py::object how = values_[step.name];
                columns_.disturb();
                return how.cast<const Labels&>().write(
                    columns_,
                    {step.index, static_cast<std::int64_t>(column.rows.size()), size_, BatchIds::Form::flat,
                     static_cast<std::int64_t*>(const_cast<void*>(ids.data)), static_cast<std::int64_t*>(out.data)});
            }
        }
        return {};
    }

    py::dict batch;

private:
    // [1, tokens rounded up], but one number per row, and one more, for the bounds.
    Output output(const FlatStep& step) const {
        const Column& column = columns_.at(step.index);
        if (step.action == FlatAction::bounds) {
            return {{static_cast<std::int64_t>(column.rows.size()) + 1}, Kind::int32};
        }
        std::int64_t total = column.total;
        if (step.action == FlatAction::shift) {
            total += std::count(column.lengths.begin(), column.lengths.end(), 0);
        }
        const bool counts = step.action == FlatAction::positions || step.action == FlatAction::derive;
        const Kind kind = counts ? Kind::int64 : step.action == FlatAction::sequences ? Kind::int32 : step.kind;
        return {{1, (total + multiple_of_ - 1) / multiple_of_ * multiple_of_}, kind};
    }

    Allocation flat(const FlatStep& step) {
        Output wanted = output(step);
        size_ = wanted.shape.back();
        Allocation out = memory_.take(std::move(wanted));
        batch[step.name] = out.array;
        return out;
    }

    Status pad(const FlatStep& step, std::int64_t filled, void* out) const {
        return fill_tail(out, step.kind, filled, size_, PyDict_GetItemWithError(values_.ptr(), step.name.ptr()));
    }

    Status join(const FlatStep& step, const Column& column) {
        const Allocation out = flat(step);
        const Status status = columns_.flatten(step.index, out.data, step.kind, column.total);
        joined_[step.index] = {out.data, 0, static_cast<std::int64_t>(item_size(step.kind)), step.kind};
        return status ? pad(step, column.total, out.data) : status;
    }

    Status shift(const FlatStep& step, const Column& column) {
        std::vector<std::int64_t> start;
        start.reserve(column.lengths.size());
        std::int64_t total = 0;
        for (const std::int64_t length : column.lengths) {
            start.push_back(total);
            total += std::max<std::int64_t>(length, 1);
        }
        const Allocation out = flat(step);
        std::uint64_t separator = 0;
        if (!decode_number(separator_.ptr(), step.kind, &separator)) {
            return {Code::out_of_range};
        }
        Status status = copy(step, column, span_of(start), total, out.data);
        if (status) {
            status = separate_rows(span_of(start), step.kind, &separator, out.data, total);
        }
        return status ? pad(step, total, out.data) : status;
    }

    // Rows that an earlier step has joined are numbers already: no Python object is looked at again.
    Status copy(const FlatStep& step, const Column& column, Span<const std::int64_t> start, std::int64_t total,
                void* out) const {
        Row row = joined_[step.index];
        if (row.data == nullptr) {
            return columns_.place(step.index, start, out, step.kind, total);
        }
        std::vector<Row> rows;
        rows.reserve(column.lengths.size());
        for (const std::int64_t length : column.lengths) {
            row.length = length;
            rows.push_back(row);
            row.data = static_cast<const char*>(row.data) + length * row.stride;
        }
        return copy_rows({rows.data(), static_cast<std::int64_t>(rows.size())}, start, step.kind, out, total);
    }

    const Columns& columns_;
    const py::dict& values_;
    BatchMemory memory_;
    std::int64_t multiple_of_;
    py::handle separator_;
    std::int64_t start_;
    std::vector<Row> joined_;  // by column
    std::int64_t size_ = 0;    // of the output that is being written
};

}  // namespace

py::object flatten_batch(const Columns& columns, const FlatPlan& plan, const Interop& interop, Framework framework) {
    if (plan.multiple_of < 1) {
        throw py::value_error("multiple_of must be positive");
    }
    FlatBatch made(columns, plan.values, interop, framework, plan.multiple_of, plan.separator, plan.start);
    const std::vector<FlatStep> parsed = parse_flat_steps(plan.steps);
    for (const FlatStep& step : parsed) {
        made.expect(step);
    }
    for (std::size_t i = 0; i < parsed.size(); ++i) {
        const Status status = made.add(parsed[i]);
        if (!status) {
            return py::make_tuple(i, static_cast<int>(status.code), status.row, status.position);
        }
    }
    return std::move(made.batch);
}

void register_flatten(py::module_& m) {
    m.def(
        "flatten_batch",
        [](const Columns& columns, py::tuple steps, py::dict values, const Interop& interop, bool torch,
           std::int64_t multiple_of, py::object separator, std::int64_t start) {
            const FlatPlan plan{std::move(steps), std::move(values), multiple_of, std::move(separator), start};
            return flatten_batch(columns, plan, interop, torch ? Framework::torch : Framework::numpy);
        },
        py::arg("columns"), py::arg("steps"), py::arg("values"), py::arg("interop"), py::arg("torch"),
        py::arg("multiple_of"), py::arg("separator"), py::arg("start"));
    m.def(
        "position_ids",
        [](std::uintptr_t lengths, std::int64_t rows, std::int64_t start, std::uintptr_t out, std::int64_t out_size) {
            return report(position_ids(span_at(lengths, rows), start, reinterpret_cast<std::int64_t*>(out), out_size));
        },
        py::arg("lengths"), py::arg("rows"), py::arg("start"), py::arg("out"), py::arg("out_size"));
    m.def(
        "seq_idx",
        [](std::uintptr_t lengths, std::int64_t rows, std::uintptr_t out, std::int64_t out_size) {
            return report(seq_idx(span_at(lengths, rows), reinterpret_cast<std::int32_t*>(out), out_size));
        },
        py::arg("lengths"), py::arg("rows"), py::arg("out"), py::arg("out_size"));
    m.def(
        "cu_seqlens",
        [](std::uintptr_t lengths, std::int64_t rows, Kind kind, std::uintptr_t out) {
            return report(cu_seqlens(span_at(lengths, rows), kind, reinterpret_cast<void*>(out)));
        },
        py::arg("lengths"), py::arg("rows"), py::arg("kind"), py::arg("out"));
    m.def(
        "separate_rows",
        [](std::uintptr_t start, std::int64_t rows, Kind kind, const py::object& value, std::uintptr_t out,
           std::int64_t out_size) {
            std::uint64_t element = 0;
            if (!decode_number(value.ptr(), kind, &element)) {
                return report({Code::out_of_range});
            }
            return report(separate_rows(span_at(start, rows), kind, &element, reinterpret_cast<void*>(out), out_size));
        },
        py::arg("start"), py::arg("rows"), py::arg("kind"), py::arg("value"), py::arg("out"), py::arg("out_size"));
    m.def(
        "fill_tail",
        [](std::uintptr_t out, Kind kind, std::int64_t filled, std::int64_t out_size, const py::object& value) {
            return report(fill_tail(reinterpret_cast<void*>(out), kind, filled, out_size, value));
        },
        py::arg("out"), py::arg("kind"), py::arg("filled"), py::arg("out_size"), py::arg("value"));
}

}  // namespace quadrat
