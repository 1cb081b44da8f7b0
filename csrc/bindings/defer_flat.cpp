// Flat batches, deferred.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "defer.hpp"
#include "defer_buffer.hpp"

namespace quadrat {
namespace {

// What an output of a flat batch is made of.
Status place_flat(const Columns& columns, const FlatPlan& plan, const std::vector<FlatStep>& steps, std::size_t i,
                  const Drawn& drawn, Buffer* buffer, Place* place) {
    const auto& [name, index, action, kind] = steps[i];
    const Column& column = columns.at(index);
    if (action == FlatAction::longest) {
        place->total = column.max_length;
        return {};
    }
    if (action == FlatAction::bounds) {
        place->offsets = buffer->offsets(index);
        place->shape = {columns.count(index) + 1};
        return {};
    }
    std::int64_t filled = column.total;
    if (action == FlatAction::shift) {
        filled = 0;
        for (const std::int64_t length : column.lengths) {
            filled += std::max<std::int64_t>(length, 1);
        }
    }
    const std::int64_t size = round_up(filled, plan.multiple_of);
    place->shape = {1, size};
    place->total = column.total;
    if (action == FlatAction::positions || action == FlatAction::sequences) {
        place->offsets = buffer->offsets(index);
        return {};
    }
    if (action == FlatAction::derive) {
        place->total = size;
        place->values = buffer->reserve(size, kind);
        return drawn.labels == nullptr ? Status{Code::bad_argument} : Status{};
    }
    if (size > filled) {
        const Status status = find_fill(plan.values, name, kind, place);
        if (!status) {
            return status;
        }
    }
    if (action == FlatAction::shift) {
        std::uint64_t separator = 0;
        if (!decode_number(plan.separator.ptr(), kind, &separator)) {
            return {Code::out_of_range};
        }
        place->offsets = buffer->offsets(index);
        place->start = buffer->starts(index);
    } else if (drawn.is_of(index) && i == drawn.ids_step) {
        place->total = size;
        place->values = buffer->reserve(size, kind);
        return {};
    } else if (size > filled) {
        place->offsets = buffer->offsets(index);
    }
    place->values = buffer->values(index, kind, i);
    return {};
}

Status draw_flat(const Columns& columns, const Drawn& drawn, const std::vector<Place>& places, const Buffer& buffer) {
    const Place &ids = places[drawn.ids_step], &labels = places[drawn.labels_step];
    const std::int64_t total = columns.at(drawn.index).total, size = ids.shape[1];
    auto* const out = buffer.at<std::int64_t>(ids.values);
    const Status status = columns.flatten(drawn.index, out, Kind::int64, total);
    if (!status) {
        return status;
    }
    std::int64_t fill = 0;
    if (size > total && !decode_number(ids.fill.ptr(), Kind::int64, &fill)) {
        return {Code::out_of_range};
    }
    std::fill(out + total, out + size, fill);
    columns.disturb();
    return drawn.labels->write(columns, {drawn.index, columns.count(drawn.index), size, BatchIds::Form::flat, out,
                                         buffer.at<std::int64_t>(labels.values)});
}

}  // namespace

py::object defer_flat(const Columns& columns, const FlatPlan& plan, const Interop& interop,
                      const DeferredFactory& factory) {
    if (plan.multiple_of < 1) {
        throw py::value_error("multiple_of must be positive");
    }
    const std::vector<FlatStep> steps = parse_flat_steps(plan.steps);
    bool derived = false;
    Drawn drawn = find_drawn(steps, FlatAction::derive, plan.values, &derived);
    const auto ids = std::find_if(steps.begin(), steps.end(), [&](const FlatStep& step) {
        return step.action == FlatAction::join && step.index == drawn.index && step.kind == Kind::int64;
    });
    drawn.ids_step = static_cast<std::size_t>(ids - steps.begin());
    if (derived && ids == steps.end()) {
        return failure(drawn.labels_step, {Code::bad_argument});
    }
    Buffer buffer(columns);
    std::vector<Place> places(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const Status status = place_flat(columns, plan, steps, i, drawn, &buffer, &places[i]);
        if (!status) {
            return failure(i, status);
        }
    }
    buffer.allocate_on(interop);
    std::size_t failed = 0;
    Status status = buffer.write(&failed);
    if (status && drawn.labels != nullptr) {
        failed = drawn.labels_step;
        status = draw_flat(columns, drawn, places, buffer);
    }
    if (!status) {
        return failure(failed, status);
    }
    columns.disturb();
    return factory.make(buffer.tensor, plan.steps, layout_of(places), columns.count(0),
                        py::make_tuple(plan.multiple_of, plan.separator, plan.start), factory.wrapped);
}

}  // namespace quadrat
