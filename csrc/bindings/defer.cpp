#include "defer.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "defer_buffer.hpp"
#include "defer_masking.hpp"
#include "register.hpp"

namespace quadrat {

Status defer(const Columns& columns, const py::tuple& steps, const std::vector<Step>& parsed, const py::dict& values,
             const Interop& interop, const Shape& batch_shape, const DeferredFactory& factory, py::object* batch,
             std::size_t* failed) {
    bool derived = false;
    Drawn drawn = find_drawn(parsed, Action::labels, values, &derived);
    DeferredMasking masking(columns, parsed, drawn);
    drawn.labels = masking ? nullptr : drawn.labels;
    Buffer buffer(columns);
    std::vector<Place> places(parsed.size());
    bool has_ids = false;
    for (std::size_t i = 0; i < parsed.size(); ++i) {
        const auto& [name, index, action, kind] = parsed[i];
        Place& place = places[i];
        *failed = i;
        if (action == Action::hold) {
            continue;
        }
        const Column& column = columns.at(index);
        const std::int64_t rows = columns.count(index);
        place.shape.push_back(rows);
        if (action == Action::numbers) {
            place.values = buffer.values(index, kind, i, true);
            place.total = rows;
            continue;
        }
        std::int64_t extent = batch_shape.width;
        if (action == Action::stack || action == Action::pad_own) {
            extent = action == Action::stack
                         ? column.max_length
                         : round_up(column.max_length, std::max<std::int64_t>(batch_shape.multiple_of, 1));
        } else if (action == Action::labels) {
            extent = has_ids ? places[drawn.ids_step].shape[1] : 0;
        }
        place.shape.push_back(extent);
        if (action == Action::mask) {
            place.offsets = buffer.offsets(index);
            continue;
        }
        if (action == Action::labels) {
            if (!has_ids) {
                return {Code::bad_argument};
            }
            if (masking) {
                masking.reserve(&buffer);
            } else if (drawn.labels == nullptr) {
                place.total = py::object(values[name]).cast<const CausalLabels&>().pad_id();
            } else {
                place.total = rows * extent;
                place.values = buffer.reserve(place.total, kind);
            }
            continue;
        }
        const auto longer = std::find_if(column.lengths.begin(), column.lengths.end(),
                                         [extent = extent](std::int64_t length) { return length > extent; });
        if (longer != column.lengths.end()) {
            return {Code::row_too_long, longer - column.lengths.begin()};
        }
        if (column.min_length < extent) {
            const Status status = find_fill(values, name, kind, &place);
            if (!status) {
                return status;
            }
        }
        const bool is_ids = derived && index == drawn.index && kind == Kind::int64 && action != Action::pad_own;
        if (is_ids) {
            has_ids = true;
            drawn.ids_step = i;
        }
        if (is_ids && drawn.labels != nullptr) {
            place.total = rows * extent;
            place.values = buffer.reserve(place.total, kind);
            continue;
        }
        place.total = column.total;
        place.values = buffer.values(index, kind, i);
        if (is_ids || column.min_length < extent) {
            place.offsets = buffer.offsets(index);
        }
    }
    buffer.allocate_on(interop);
    Status status = buffer.write(failed);
    if (status && masking) {
        *failed = drawn.labels_step;
        status = masking.write(buffer, places[drawn.ids_step]);
    }
    if (status && drawn.labels != nullptr) {
        const Place &ids = places[drawn.ids_step], &labels = places[drawn.labels_step];
        const std::int64_t rows = ids.shape[0], width = ids.shape[1];
        auto* const out = buffer.at<std::int64_t>(ids.values);
        *failed = drawn.ids_step;
        status = columns.pad(drawn.index, out, Kind::int64, width, batch_shape.left, ids.fill);
        if (status) {
            const auto form = batch_shape.left ? BatchIds::Form::left : BatchIds::Form::right;
            *failed = drawn.labels_step;
            columns.disturb();
            status = drawn.labels->write(columns,
                                         {drawn.index, rows, width, form, out, buffer.at<std::int64_t>(labels.values)});
        }
    }
    if (status) {
        const std::int64_t rows = columns.columns.empty() ? 0 : columns.count(0);
        columns.disturb();
        *batch = factory.make(buffer.tensor, steps, layout_of(places), rows,
                              py::make_tuple(batch_shape.width, batch_shape.multiple_of, batch_shape.left),
                              masking.as_object(), factory.wrapped);
    }
    return status;
}

void register_defer(py::module_& m) {
    m.def(
        "defer",
        [](const Columns& columns, const py::tuple& steps, const py::dict& values, const Interop& interop,
           std::int64_t width, std::int64_t multiple_of, bool left, py::object factory) {
            py::object batch;
            std::size_t failed = 0;
            const Status status = defer(columns, steps, parse_steps(steps), values, interop, {width, multiple_of, left},
                                        {std::move(factory), false}, &batch, &failed);
            return status ? batch : py::object(failure(failed, status));
        },
        py::arg("columns"), py::arg("steps"), py::arg("values"), py::arg("interop"), py::arg("width"),
        py::arg("multiple_of"), py::arg("left"), py::arg("factory"));
    m.def(
        "defer_flat",
        [](const Columns& columns, py::tuple steps, py::dict values, const Interop& interop, std::int64_t multiple_of,
           py::object separator, std::int64_t start, py::object factory) {
            const FlatPlan plan{std::move(steps), std::move(values), multiple_of, std::move(separator), start};
            return defer_flat(columns, plan, interop, {std::move(factory), false});
        },
        py::arg("columns"), py::arg("steps"), py::arg("values"), py::arg("interop"), py::arg("multiple_of"),
        py::arg("separator"), py::arg("start"), py::arg("factory"));
}

}  // namespace quadrat
