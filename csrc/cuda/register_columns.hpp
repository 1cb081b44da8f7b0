// The kernels that take tokens of several elements, and columns by the dozen, as Python functions: see register.hpp.
#pragma once

#include "register.hpp"

namespace quadrat::cuda {

// Tokens of `inner` elements: the number of bytes of `count` of them, checked to leave room for addresses.
inline void require_tokens(std::int64_t count, std::int64_t inner, std::size_t item) {
    require_item(item);
    require(inner >= 0, "inner must not be negative");
    static_cast<void>(padded_size(count, inner));
}

inline int column_count(const py::sequence& columns) {
    require(py::len(columns) <= most_columns, "a launch takes 16 columns");
    return static_cast<int>(py::len(columns));
}

// (values, values_size, offsets, width, left, item, inner, value, fill, out)
inline PadColumn pad_column_of(const py::tuple& row, std::int64_t rows) {
    require(row.size() == 10, "a column has ten numbers");
    const auto number = [&](std::size_t i) { return row[i].cast<std::int64_t>(); };
    const auto bits = [&](std::size_t i) { return row[i].cast<std::uint64_t>(); };
    const auto item = row[5].cast<std::size_t>();
    const std::int64_t values_size = number(1), width = number(3), inner = number(6);
    require(values_size >= 0, "a size is negative");
    require_tokens(values_size, inner, item);
    require_tokens(padded_size(rows, width), inner, item);
    const auto values = bits(0);
    require(values != 0 || values_size == 0, "an address is null");
    return {pointer<const void>(values, item, 0),
            values_size,
            offsets_pointer(bits(2), rows),
            width,
            inner,
            item,
            side_of(row[4].cast<bool>()),
            bits(7),
            bits(8),
            pointer<void>(bits(9), item, rows * width * inner)};
}

// (source, values, values_size, inner, item, value, fill, out)
inline FlatColumn flat_column_of(const py::tuple& row, std::int64_t rows, std::int64_t out_size) {
    require(row.size() == 8, "a column has eight numbers");
    const auto number = [&](std::size_t i) { return row[i].cast<std::int64_t>(); };
    const auto bits = [&](std::size_t i) { return row[i].cast<std::uint64_t>(); };
    require(number(0) >= 0 && number(0) <= static_cast<int>(FlatSource::bounds), "no such source");
    const auto source = static_cast<FlatSource>(number(0));
    const auto item = row[4].cast<std::size_t>();
    const std::int64_t values_size = number(2), inner = number(3);
    require(values_size >= 0, "a size is negative");
    require_tokens(values_size, inner, item);
    require_tokens(out_size, inner, item);
    const bool copies = source == FlatSource::values || source == FlatSource::separated;
    require(copies || inner == 1, "inner must be 1");
    require(source != FlatSource::positions || item == 8, "positions have 8 bytes");
    require(source != FlatSource::sequences || item == 4, "sequences have 4 bytes");
    require(source != FlatSource::bounds || item == 4 || item == 8, "bounds have 4 or 8 bytes");
    const std::int64_t size = source == FlatSource::bounds ? rows + 1 : out_size * inner;
    return {source,      pointer<const void>(bits(1), item, copies ? values_size * inner : 0),
            values_size, inner,
            item,        bits(5),
            bits(6),     pointer<void>(bits(7), item, size)};
}

template <typename... Extra, typename Launch, typename... Names>
void register_columns(py::module_& m, Launch launch, const Names&... names) {
    m.def(
        "pad_columns",
        [launch](const py::sequence& columns, std::int64_t rows, Extra... extra) {
            require(rows >= 0, "rows must not be negative");
            PadColumns call;
            call.rows = rows;
            call.count = column_count(columns);
            for (int i = 0; i < call.count; ++i) {
                call.columns[i] = pad_column_of(py::tuple(columns[static_cast<std::size_t>(i)]), rows);
            }
            launch(call, extra...);
        },
        py::arg("columns"), py::arg("rows"), names...);
    m.def(
        "flatten_columns",
        [launch](const py::sequence& columns, std::uintptr_t offsets, std::int64_t rows, std::int64_t out_size,
                 Extra... extra) {
            FlattenColumns call;
            call.offsets = offsets_pointer(offsets, rows + 1);
            call.rows = rows;
            call.out_size = flat_size(rows, out_size);
            call.count = column_count(columns);
            for (int i = 0; i < call.count; ++i) {
                call.columns[i] = flat_column_of(py::tuple(columns[static_cast<std::size_t>(i)]), rows, out_size);
            }
            launch(call, extra...);
        },
        py::arg("columns"), py::arg("offsets"), py::arg("rows"), py::arg("out_size"), names...);
    m.def(
        "unpad",
        [launch](std::uintptr_t padded, std::uintptr_t offsets, std::int64_t rows, std::int64_t width, bool left,
                 std::size_t item, std::int64_t inner, std::uintptr_t out, std::int64_t out_size, Extra... extra) {
            const std::int64_t tokens = padded_size(rows, width);
            require_tokens(tokens, inner, item);
            require_tokens(flat_size(rows, out_size), inner, item);
            launch(Unpad{pointer<const void>(padded, item, tokens * inner), offsets_pointer(offsets, rows), rows, width,
                         inner, item, side_of(left), pointer<void>(out, item, out_size * inner), out_size},
                   extra...);
        },
        py::arg("padded"), py::arg("offsets"), py::arg("rows"), py::arg("width"), py::arg("left"), py::arg("item"),
        py::arg("inner"), py::arg("out"), py::arg("out_size"), names...);
}

}  // namespace quadrat::cuda
