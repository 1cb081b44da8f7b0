// Kernels one by one, for outputs that are not a batch.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "../../kernels/copy_rows.hpp"
#include "../../kernels/document_blocks.hpp"
#include "../../kernels/kept_tokens.hpp"
#include "../../kernels/order_rows.hpp"
#include "../../kernels/padded_rows.hpp"
#include "../classes.hpp"
#include "ints.hpp"

namespace quadrat {
namespace {

// Rows of flat values by their numbers, one after the other. Row r lies between bounds[r] and bounds[r + 1].
Status copy_rows_at(Address values, std::int64_t values_size, Kind kind, const Ints& bounds, const Ints& numbers,
                    Address out, std::int64_t out_size) {
    const Span<const std::int64_t> bound = span_of(bounds);
    const auto item = static_cast<std::int64_t>(item_size(kind));
    const char* const first = values;
    std::vector<Row> rows;
    std::vector<std::int64_t> start;
    rows.reserve(static_cast<std::size_t>(numbers.size()));
    start.reserve(rows.capacity());
    std::int64_t end = 0;
    for (const std::int64_t number : span_of(numbers)) {
        const auto at = static_cast<std::int64_t>(rows.size());
        if (number < 0 || number >= bound.size - 1) {
            return {Code::bad_argument, at};
        }
        const std::int64_t begin = bound[number], length = bound[number + 1] - begin;
        if (begin < 0 || begin > values_size || length < 0 || length > values_size - begin) {
            return {Code::bad_start, at};
        }
        if (length > out_size - end) {
            return {Code::row_too_long, at};
        }
        rows.push_back({first + begin * item, length, item, kind});
        start.push_back(end);
        end += length;
    }
    return copy_rows({rows.data(), numbers.size()}, {start.data(), numbers.size()}, kind, out, out_size);
}

}  // namespace

void register_kernels(py::module_& m) {
    m.def("copy_rows", &copy_rows_at, "values"_a, "values_size"_a, "kind"_a, array_arg("bounds"), array_arg("numbers"),
          "out"_a, "out_size"_a, WithoutGil());
    m.def(
        "document_blocks",
        [](const Ints& offsets, std::int64_t total, std::array<std::int64_t, 2> reach, std::array<std::int64_t, 2> size,
           std::array<Address, 4> out) {
            const py::gil_scoped_release release;
            return document_blocks(span_of(offsets), total, {reach[0], reach[1]}, {size[0], size[1]}, {out[0], out[1]},
                                   {out[2], out[3]});
        },
        array_arg("offsets"), "total"_a, "reach"_a, "size"_a, "out"_a);
    m.def(
        "check_offsets",
        [](const Ints& offsets, std::int64_t size) {
            LongestRow longest;
            const Status status = check_offsets(span_of(offsets), size, &longest);
            return py::make_tuple(status, longest.row, longest.length);
        },
        array_arg("offsets"), "size"_a);
    m.def(
        "group_by_length",
        [](const Ints& lengths, std::int64_t megabatch, Ints& rows) {
            std::vector<std::int64_t> spare(
                static_cast<std::size_t>(std::max<std::int64_t>(0, std::min<std::int64_t>(megabatch, rows.size()))));
            Watch watch(&look_for_signals);
            return group_by_length(span_of(lengths), megabatch, {spare.data(), static_cast<std::int64_t>(spare.size())},
                                   span_to(rows), watch);
        },
        array_arg("lengths"), "megabatch"_a, array_arg("rows"), WithoutGil());
    m.def(
        "unpad",
        [](Address padded, std::int64_t width, Side left, Address offsets, std::int64_t rows, std::size_t token,
           Address out,
           std::int64_t out_size) { return unpad(padded, width, left, {offsets, rows + 1}, token, out, out_size); },
        "padded"_a, "width"_a, "left"_a, "offsets"_a, "rows"_a, "token"_a, "out"_a, "out_size"_a, WithoutGil());
    m.def(
        "count_masked",
        [](Address mask, std::int64_t width, Address offsets, std::int64_t rows) {
            return static_cast<bool>(count_masked(mask, width, {offsets, rows + 1}));
        },
        "mask"_a, "width"_a, "offsets"_a, "rows"_a, WithoutGil());
    m.def(
        "unpad_masked",
        [](Address padded, Address mask, std::int64_t width, std::size_t token, Address offsets, std::int64_t rows,
           Address out) { return unpad_masked(padded, mask, width, token, {offsets, rows + 1}, out); },
        "padded"_a, "mask"_a, "width"_a, "token"_a, "offsets"_a, "rows"_a, "out"_a, WithoutGil());
    m.def(
        "mask_layout",
        [](Address mask, std::size_t item, std::int64_t width, Address cu_seqlens, Address lengths, std::int64_t rows) {
            MaskFacts facts;
            Status status;
            {
                const py::gil_scoped_release release;
                status = mask_layout(mask, item, width, {cu_seqlens, rows + 1}, lengths, &facts);
            }
            return py::make_tuple(status, facts.total, facts.longest, facts.plain);
        },
        "mask"_a, "item"_a, "width"_a, "cu_seqlens"_a, "lengths"_a, "rows"_a);
    m.def(
        "mask_indices",
        [](Address mask, std::size_t item, std::int64_t size, Address out, std::int64_t out_size) {
            return mask_indices(mask, item, size, {out, out_size});
        },
        "mask"_a, "item"_a, "size"_a, "out"_a, "out_size"_a, WithoutGil());
    m.def(
        "take_tokens",
        [](Address values, std::int64_t size, std::size_t token, Address indices, std::int64_t count, Address out) {
            return take_tokens(values, size, token, {indices, count}, out);
        },
        "values"_a, "size"_a, "token"_a, "indices"_a, "count"_a, "out"_a, WithoutGil());
    m.def(
        "put_tokens",
        [](Address values, std::size_t token, Address indices, std::int64_t count, Address out, std::int64_t size) {
            return put_tokens(values, token, {indices, count}, out, size);
        },
        "values"_a, "token"_a, "indices"_a, "count"_a, "out"_a, "size"_a, WithoutGil());
    m.def(
        "concat_padded",
        [](Address blocks, std::int64_t count, std::int64_t width, std::size_t token, const py::bytes& fill,
           Address out, std::int64_t rows) {
            const std::string_view item = fill;
            const py::gil_scoped_release release;
            return concat_padded({blocks, count}, width, token, item.data(), item.size(), out, rows);
        },
        "blocks"_a, "count"_a, "width"_a, "token"_a, "fill"_a, "out"_a, "rows"_a);
}

}  // namespace quadrat
