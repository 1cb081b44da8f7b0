// Flat outputs in which rows have places longer than they are, whose length is given, or whose padding is not counted.
#include <algorithm>

#include "../../kernels/copy_rows.hpp"
#include "../../kernels/cu_seqlens.hpp"
#include "../../kernels/document_ids.hpp"
#include "../../kernels/fill_ends.hpp"
#include "../../kernels/position_ids.hpp"
#include "../../kernels/separate_rows.hpp"
#include "../../kernels/seq_idx.hpp"
#include "../input/decode.hpp"
#include "execute.hpp"

namespace quadrat {
namespace {

std::vector<std::int64_t> lengths_between(const std::vector<std::int64_t>& places) {
    std::vector<std::int64_t> lengths(places.size() - 1);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        lengths[i] = places[i + 1] - places[i];
    }
    return lengths;
}

Span<const std::int64_t> span_of(const std::vector<std::int64_t>& numbers) {
    return {numbers.data(), static_cast<std::int64_t>(numbers.size())};
}

}  // namespace

std::int64_t Execution::placed(std::int64_t length) const {
    return layout_.align_to == 0 ? length : round_up(length, layout_.align_to);
}

std::int64_t Execution::placed(const Column& column) const {
    if (layout_.align_to == 0) {
        return column.total;
    }
    std::int64_t sum = 0;
    for (const std::int64_t length : column.lengths) {
        sum += placed(length);
    }
    return sum;
}

std::int64_t Execution::flat_extent(std::int64_t placed) const {
    return layout_.total != 0 ? layout_.total : round_up(placed, layout_.multiple_of);
}

std::vector<std::int64_t> Execution::places(const Column& column, std::int64_t extent) const {
    std::vector<std::int64_t> start;
    start.reserve(column.lengths.size() + 1);
    std::int64_t sum = 0;
    for (const std::int64_t length : column.lengths) {
        start.push_back(sum);
        sum += placed(length);
    }
    start.push_back(extent);
    return start;
}

py::object Execution::object(const Step& step) const {
    const Column& column = columns_.at(step.index);
    switch (step.action) {
        case Action::longest: {
            std::int64_t longest = placed(column.max_length);
            if (layout_.align_to != 0 && !column.lengths.empty()) {
                const std::int64_t before = placed(column) - placed(column.lengths.back());
                longest = std::max(longest, flat_extent(placed(column)) - before);
            }
            return py::int_(longest);
        }
        case Action::total:
            return py::int_(flat_extent(placed(column)));
        case Action::constant:
            return plan_.values[step.name];
        default:
            return py::none();
    }
}

Status Execution::write_placed(const Step& step, std::int64_t extent, void* out) const {
    const Column& column = columns_.at(step.index);
    const std::int64_t flat = flat_extent(placed(column));
    if (placed(column) > flat || (column.lengths.empty() && flat > 0)) {
        return {Code::row_too_long};
    }
    const std::vector<std::int64_t> start = places(column, flat);
    const std::int64_t* const lengths = column.lengths.data();
    Status status;
    switch (step.action) {
        case Action::join:
        case Action::shift:
            return place_rows(step, span_of(start), extent, out);
        case Action::positions: {
            const std::int64_t none = 0;
            const std::vector<std::int64_t> counted = layout_.align_to == 0 ? column.lengths : lengths_between(start);
            status = position_ids(span_of(counted), layout_.start, static_cast<std::int64_t*>(out), extent);
            return status && !layout_.continue_positions
                       ? fill_ends(span_of(start), lengths, Kind::int64, &none, out, extent)
                       : status;
        }
        case Action::sequences: {
            const std::int32_t none = -1;
            status = seq_idx(span_of(lengths_between(start)), static_cast<std::int32_t*>(out), extent);
            return status ? fill_ends(span_of(start), lengths, Kind::int32, &none, out, extent) : status;
        }
        case Action::bounds:
            return cu_seqlens(layout_.align_to == 0 ? column.all_lengths() : span_of(lengths_between(start)),
                              Kind::int32, out);
        case Action::documents:
            return document_ids({start.data(), columns_.count(step.index)}, lengths, static_cast<std::int64_t*>(out),
                                extent);
        case Action::gaps: {
            const bool yes = true;
            std::fill_n(static_cast<bool*>(out), extent, false);
            return fill_ends(span_of(start), lengths, Kind::bool_, &yes, out, extent);
        }
        default:
            return {Code::bad_argument};
    }
}

Status Execution::write_row_positions(const Step& step, std::int64_t extent, std::int64_t* out) const {
    const Column& column = columns_.at(step.index);
    if (column.max_length > extent) {
        return {Code::row_too_long};
    }
    const std::vector<std::int64_t> widths(column.lengths.size(), extent);
    std::vector<std::int64_t> start(column.lengths.size() + 1);
    for (std::size_t i = 1; i < start.size(); ++i) {
        start[i] = start[i - 1] + extent;
    }
    const std::int64_t none = 0;
    const Status status = position_ids(span_of(widths), 0, out, start.back());
    return status ? fill_ends(span_of(start), column.lengths.data(), Kind::int64, &none, out, start.back()) : status;
}

Status Execution::place_rows(const Step& step, Span<const std::int64_t> start, std::int64_t extent, void* out) const {
    const Column& column = columns_.at(step.index);
    const Span<const std::int64_t> starts{start.data, columns_.count(step.index)};
    std::uint64_t fill = 0, separator = 0;
    if (!decode_number(value(step).ptr(), step.kind, &fill) ||
        (step.action == Action::shift && !decode_number(layout_.separator.ptr(), step.kind, &separator))) {
        return {Code::out_of_range};
    }
    Status status = columns_.place(step.index, starts, out, step.kind, extent);
    if (status && step.action == Action::shift) {
        status = column.min_length > 0 ? separate_rows(starts, step.kind, &separator, out, extent)
                                       : Status{Code::wrong_length};
    }
    return status ? fill_ends(start, column.lengths.data(), step.kind, &fill, out, extent) : status;
}

}  // namespace quadrat
