// Flat outputs: rows one after the other, and what tells them apart. Outputs of prompts and completions: each
// completion of an example comes after its prompt.
#include <algorithm>
#include <functional>
#include <numeric>

#include "../../kernels/bytes.hpp"
#include "../../kernels/copy_rows.hpp"
#include "../../kernels/flat_rows.hpp"
#include "../../kernels/padded_rows.hpp"
#include "../input/python_number.hpp"
#include "execute.hpp"

namespace quadrat {
namespace {

std::vector<std::int64_t> lengths_between(const std::vector<std::int64_t>& places) {
    std::vector<std::int64_t> lengths(places.size() - 1);
    std::transform(places.begin() + 1, places.end(), places.begin(), lengths.begin(), std::minus<>());
    return lengths;
}

// Sequences that lie one after the other to their places, the last one first: no place is before its sequence.
void move_apart(const std::vector<std::int64_t>& lengths, const std::vector<std::int64_t>& start, std::size_t token,
                void* out) {
    auto* const base = static_cast<char*>(out);
    auto end = static_cast<std::size_t>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
    for (std::size_t i = lengths.size(); i-- > 0;) {
        const auto length = static_cast<std::size_t>(lengths[i]);
        end -= length;
        move_bytes(base + static_cast<std::size_t>(start[i]) * token, base + end * token, length * token);
    }
}

}  // namespace

std::int64_t Execution::placed(const Column& column) const {
    if (layout_.align_to == 0) {
        return column.total;
    }
    std::int64_t sum = 0;
    for (const std::int64_t length : sequences(column)) {
        sum += placed(length);
    }
    return sum;
}

Status Execution::read_documents() {
    const auto index = static_cast<std::size_t>(layout_.seq_lengths);
    const Column &column = columns_.at(index), &rows = columns_.at(0);
    // Flat batches have no empty sequences. TRL does not restart positions after an empty document.
    const bool all_have_tokens = plan_.steps.front().action == Action::join || !layout_.continue_positions;
    const std::int64_t least = all_have_tokens ? 1 : 0;
    documents_.resize(static_cast<std::size_t>(column.total));
    Status status = columns_.flatten(index, documents_.data(), Kind::int64, column.total);
    const std::int64_t* next = documents_.data();
    for (std::size_t i = 0; i < column.lengths.size() && status; ++i) {
        std::int64_t rest = rows.lengths.at(i);
        for (std::int64_t left = column.lengths[i]; left > 0 && rest >= 0; --left, ++next) {
            rest = *next < least || *next > rest ? -1 : rest - *next;
        }
        status = rest == 0 ? Status() : Status{Code::wrong_length};
    }
    if (!status) {
        documents_.clear();  // numbers that were not checked
    }
    return status;
}

const std::vector<std::int64_t>& Execution::places(const std::vector<std::int64_t>& lengths,
                                                   std::int64_t extent) const {
    if (placed_ != &lengths || places_.back() != extent) {
        placed_ = &lengths;
        places_.assign(lengths.size() + 1, 0);
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            places_[i + 1] = places_[i] + placed(lengths[i]);
        }
        places_.back() = extent;
    }
    return places_;
}

std::int64_t Execution::longest(const Column& column) const {
    const std::vector<std::int64_t>& apart = sequences(column);
    const std::int64_t longest = apart.empty() ? 0 : placed(*std::max_element(apart.begin(), apart.end()));
    if (layout_.align_to == 0 || apart.empty()) {
        return longest;
    }
    const std::int64_t before = placed(column) - placed(apart.back());
    return std::max(longest, flat_extent(placed(column)) - before);
}

py::object Execution::object(const Step& step) const {
    const Column& column = columns_.at(step.index);
    switch (step.action) {
        case Action::longest:
            return py::int_(longest(column));
        case Action::total:
            return py::int_(flat_extent(placed(column)));
        case Action::constant:
            return plan_.values[step.name];
        default:
            return py::none();
    }
}

bool Execution::has_room(const Column& column) const {
    const std::int64_t flat = flat_extent(placed(column));
    return placed(column) <= flat && (flat == 0 || !sequences(column).empty());
}

Status Execution::write_places(const Step& step, std::int64_t extent, void* out) const {
    const Column& column = columns_.at(step.index);
    if (!has_room(column)) {
        return {Code::row_too_long};
    }
    const std::vector<std::int64_t>& apart = sequences(column);
    const std::vector<std::int64_t>& start = places(apart, flat_extent(placed(column)));
    const std::vector<std::int64_t> aligned =
        layout_.align_to == 0 ? std::vector<std::int64_t>() : lengths_between(start);
    const Span<const std::int64_t> counted = layout_.align_to == 0 ? span_of(apart) : span_of(aligned);
    const Span<const std::int64_t> first{start.data(), counted.size};
    const std::int64_t* const lengths = apart.data();
    switch (step.action) {
        case Action::positions: {
            const Status status = position_ids(counted, layout_.start, static_cast<std::int64_t*>(out), extent);
            return status && !layout_.continue_positions
                       ? fill_ends(span_of(start), lengths, 1, Kind::int64, &layout_.start, out, extent)
                       : status;
        }
        case Action::sequences:
            return seq_idx(first, lengths, {0, -1}, static_cast<std::int32_t*>(out), extent);
        case Action::documents:
            return seq_idx(first, lengths, {1, 0}, static_cast<std::int64_t*>(out), extent);
        case Action::bounds:
            return cu_seqlens(counted, static_cast<std::int32_t*>(out));
        default: {
            const bool yes = true;
            std::fill_n(static_cast<bool*>(out), extent, false);
            return fill_ends(span_of(start), lengths, 1, Kind::bool_, &yes, out, extent);
        }
    }
}

Status Execution::place_rows(const Step& step, std::int64_t extent, void* out) const {
    const Column& column = columns_.at(step.index);
    const bool shifts = step.action == Action::shift;
    if (!has_room(column)) {
        return {Code::row_too_long};
    }
    const bool whole = layout_.seq_lengths < 0;  // each row is a sequence
    if ((shifts && column.min_length == 0 && !(whole && layout_.plain())) ||
        (!whole && column.total != columns_.at(0).total)) {
        return {Code::wrong_length};
    }
    std::uint64_t fill = 0, separator = 0, ignored = 0;
    const bool ignores = shifts && step.kind == Kind::int64 && !layout_.ignored.is_none();
    if ((filled(step) < extent && !decode_number(value(step).ptr(), step.kind, &fill)) ||
        (shifts && !decode_number(layout_.separator.ptr(), step.kind, &separator)) ||
        (ignores && !decode_number(layout_.ignored.ptr(), step.kind, &ignored))) {
        return {Code::out_of_range};
    }
    const std::vector<std::int64_t>& lengths = sequences(column);
    const std::vector<std::int64_t>& ids_start = places(lengths, extent);
    std::vector<std::int64_t> longer;  // with a separator for each empty row
    if (shifts && column.min_length == 0) {
        longer = column.offsets(1);
        longer.back() = extent;
    }
    const std::vector<std::int64_t>& start = longer.empty() ? ids_start : longer;
    const Span<const std::int64_t> first{start.data(), span_of(lengths).size};
    Status status;
    if (shifts && has_ids_for(step)) {  // they are numbers already: no Python object is looked at again
        std::vector<Row> rows;
        rows.reserve(lengths.size());
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            rows.push_back({ids_data_ + ids_start[i], lengths[i], sizeof(std::int64_t), Kind::int64});
        }
        status = copy_rows({rows.data(), first.size}, first, step.kind, out, extent);
    } else if (whole) {
        status = columns_.place(step.index, first, out, step.kind, extent);
    } else {
        status = columns_.flatten(step.index, out, step.kind, extent);
        if (status && layout_.align_to != 0) {
            move_apart(lengths, start, item_size(step.kind) * static_cast<std::size_t>(column.inner), out);
        }
    }
    status = status ? fill_ends(span_of(start), lengths.data(), column.inner, step.kind, &fill, out, extent) : status;
    status = status && shifts ? separate_rows(first, step.kind, &separator, out, extent) : status;
    if (status && ignores) {
        auto* const labels = static_cast<std::uint64_t*>(out);
        std::replace(labels, labels + extent, ignored, separator);
    }
    return status;
}

// Padded rows of documents: without their lengths, a row is one.
Status Execution::write_row_positions(const Step& step, std::int64_t extent, std::int64_t* out) const {
    const Column& column = columns_.at(step.index);
    if (column.max_length > extent) {
        return {Code::row_too_long};
    }
    const bool whole = layout_.seq_lengths < 0;
    const Column& counted = columns_.at(whole ? step.index : static_cast<std::size_t>(layout_.seq_lengths));
    const std::int64_t* length = sequences(column).data();
    for (std::size_t i = 0; i < column.lengths.size(); ++i) {
        std::int64_t next = 0;  // after the last token
        const auto pad = [&](std::int64_t count) {
            for (; count > 0; --count) {
                *out++ = layout_.continue_positions ? next++ : 0;
            }
        };
        const std::int64_t gap = extent - column.lengths[i], before = layout_.side == Side::left ? gap : 0;
        pad(before);
        for (std::int64_t left = whole ? 1 : counted.lengths.at(i); left > 0; --left, ++length) {
            std::iota(out, out + *length, std::int64_t{0});
            out += *length;
            next = *length;
        }
        pad(gap - before);
    }
    return {};
}

// The lengths of all chains, completion by completion.
std::vector<std::int64_t> Execution::chains(std::size_t index) const {
    const std::size_t first = index + (layout_.prompts ? 1 : 0);
    const std::vector<std::int64_t>& prompts = columns_.at(index).lengths;
    std::vector<std::int64_t> chains;
    chains.reserve(prompts.size() * static_cast<std::size_t>(layout_.completions));
    for (std::size_t part = first; part < first + static_cast<std::size_t>(layout_.completions); ++part) {
        const std::vector<std::int64_t>& completions = columns_.at(part).lengths;
        for (std::size_t i = 0; i < completions.size(); ++i) {
            chains.push_back(completions[i] + (layout_.prompts ? prompts.at(i) : 0));
        }
    }
    return chains;
}

std::int64_t Execution::longest_chain(std::size_t index) const {
    const std::vector<std::int64_t> lengths = chains(index);
    return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

Status Execution::place_chains(const Step& step, std::int64_t extent, std::int64_t* out) const {
    const std::vector<std::int64_t> lengths = chains(step.index);
    const std::vector<std::int64_t>& prompts = columns_.at(step.index).lengths;
    std::uint64_t fill = 0;
    const bool gaps = std::any_of(lengths.begin(), lengths.end(), [&](std::int64_t length) { return length < extent; });
    if (gaps && !decode_number(value(step).ptr(), step.kind, &fill)) {
        return {Code::out_of_range};
    }
    const std::int64_t rows = columns_.count(step.index);
    Status status;
    for (std::int64_t i = 0; i < layout_.completions && status; ++i) {
        const std::size_t part = step.index + static_cast<std::size_t>(i) + (layout_.prompts ? 1 : 0);
        std::int64_t* const first = out + i * rows * extent;
        std::vector<std::int64_t> start(prompts.size());
        for (std::size_t row = 1; row < start.size(); ++row) {
            start[row] = start[row - 1] + extent;
        }
        if (columns_.count(part) != rows) {
            return {Code::bad_argument};
        }
        if (layout_.prompts) {
            status = columns_.place(step.index, span_of(start), first, step.kind, rows * extent);
            std::transform(start.begin(), start.end(), prompts.begin(), start.begin(), std::plus<>());
        }
        status = status ? columns_.place(part, span_of(start), first, step.kind, rows * extent) : status;
    }
    return status && gaps ? fill_gaps(span_of(lengths), extent, 1, Side::right, step.kind, &fill, out) : status;
}

Status Execution::write_chains(const Step& step, std::int64_t extent, std::int64_t* out) const {
    const std::vector<std::int64_t> lengths = chains(step.index);
    const auto count = static_cast<std::int64_t>(lengths.size());
    if (layout_.total != 0 && longest_chain(step.index) > layout_.total) {
        return {Code::row_too_long};
    }
    if (step.action == Action::chain) {
        return place_chains(step, extent, out);
    }
    const Status status = attention_mask({lengths.data(), count}, extent, Side::right, step.kind, out);
    if (step.action == Action::chain_marks && layout_.prompts) {
        const std::vector<std::int64_t>& prompts = columns_.at(step.index).lengths;
        for (std::int64_t i = 0; i < count; ++i) {
            std::fill_n(out + i * extent, prompts[static_cast<std::size_t>(i) % prompts.size()], 0);
        }
    }
    return status;
}

}  // namespace quadrat
