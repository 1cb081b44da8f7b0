// The kernels as Python functions, the same for _cuda and _testing. All that the host can check is checked here.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <limits>
#include <stdexcept>

#include "../bindings/casters.hpp"
#include "../bindings/masking_options.hpp"
#include "calls.hpp"

namespace quadrat::cuda {

inline void require(bool holds, const char* message) {
    if (!holds) {
        throw std::invalid_argument(message);
    }
}

// An address of `count` elements of `size` bytes. The device faults on misaligned ones, and then stays broken.
template <typename T>
T* pointer(std::uintptr_t address, std::size_t size, std::int64_t count) {
    require(address % size == 0, "an address is not a multiple of the size of its elements");
    require(address != 0 || count == 0, "an address is null");
    return reinterpret_cast<T*>(address);
}

template <typename T>
T* array(std::uintptr_t address, std::int64_t count) {
    return pointer<T>(address, sizeof(T), count);
}

// The elements of a padded output.
inline std::int64_t padded_size(std::int64_t rows, std::int64_t width) {
    require(rows >= 0 && width >= 0, "rows and width must not be negative");
    // A row more and eight bytes each, so that neither addresses nor the end of the last row overflow.
    require(width == 0 || rows < std::numeric_limits<std::int64_t>::max() / 8 / width, "rows * width is too large");
    return rows * width;
}

inline void require_item(std::size_t item) {
    require(item == 1 || item == 2 || item == 4 || item == 8, "item must be 1, 2, 4 or 8 bytes");
}

// The size of a flat output, and that there is a row to say what its places are.
inline std::int64_t flat_size(std::int64_t rows, std::int64_t out_size) {
    require(rows >= 0 && out_size >= 0, "rows and out_size must not be negative");
    require(rows > 0 || out_size == 0, "an output without rows must be empty");
    return out_size;
}

// Refuses `count` tokens of `inner` elements where their size would overflow an address.
inline void require_tokens(std::int64_t count, std::int64_t inner, std::size_t item) {
    require_item(item);
    require(inner >= 0, "inner must not be negative");
    static_cast<void>(padded_size(count, inner));
}

template <typename Call, typename ColumnOf>
void read_columns(const py::sequence& columns, Call* call, ColumnOf column_of) {
    require(py::len(columns) <= most_columns, "a launch takes 16 columns");
    call->count = 0;
    for (const py::object column : columns) {  // owned: a sequence may make its items when they are read
        call->columns[call->count++] = column_of(column);
    }
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
    return {{pointer<const void>(values, item, 0), values_size, inner, item, bits(7), bits(8),
             pointer<void>(bits(9), item, rows * width * inner)},
            array<const std::int64_t>(bits(2), rows),
            width,
            row[4].cast<Side>()};
}

// (content, values, values_size, inner, item, value, fill, out)
inline FlatColumn flat_column_of(const py::tuple& row, std::int64_t rows, std::int64_t out_size) {
    require(row.size() == 8, "a column has eight numbers");
    const auto number = [&](std::size_t i) { return row[i].cast<std::int64_t>(); };
    const auto bits = [&](std::size_t i) { return row[i].cast<std::uint64_t>(); };
    require(number(0) >= 0 && number(0) <= static_cast<int>(FlatContent::bounds), "no such content");
    const auto content = static_cast<FlatContent>(number(0));
    const auto item = row[4].cast<std::size_t>();
    const std::int64_t values_size = number(2), inner = number(3);
    require(values_size >= 0, "a size is negative");
    require_tokens(values_size, inner, item);
    require_tokens(out_size, inner, item);
    const bool copies = content == FlatContent::values || content == FlatContent::separated;
    require(copies || inner == 1, "inner must be 1");
    require(content != FlatContent::positions || item == 8, "positions have 8 bytes");
    require(content != FlatContent::sequences || item == 4, "sequences have 4 bytes");
    require(content != FlatContent::bounds || item == 4, "bounds have 4 bytes");
    const std::int64_t size = content == FlatContent::bounds ? rows + 1 : out_size * inner;
    return {{pointer<const void>(bits(1), item, copies ? values_size * inner : 0), values_size, inner, item, bits(5),
             bits(6), pointer<void>(bits(7), item, size)},
            content};
}

inline Rows rows_of(std::uintptr_t offsets, std::int64_t rows, std::int64_t width, Side side) {
    return {array<const std::int64_t>(offsets, rows), rows, width, side};
}

// launch(call, extra...) carries one call out; the last parameters of the functions are `extra`, named by `names`.
template <typename... Extra, typename Launch, typename... Names>
void register_kernels(py::module_& m, Launch launch, const Names&... names) {
    m.def(
        "causal_labels",
        [launch](std::uintptr_t ids, std::int64_t count, std::int64_t pad_id, std::uintptr_t labels, Extra... extra) {
            launch(CausalLabels{array<const std::int64_t>(ids, padded_size(1, count)), count, pad_id,
                                array<std::int64_t>(labels, count)},
                   extra...);
        },
        "ids"_a, "count"_a, "pad_id"_a, "labels"_a, names...);
    m.def(
        "pad_columns",
        [launch](const py::sequence& columns, std::int64_t rows, Extra... extra) {
            require(rows >= 0, "rows must not be negative");
            PadColumns call;
            call.rows = rows;
            read_columns(columns, &call, [&](const py::tuple& column) { return pad_column_of(column, rows); });
            launch(call, extra...);
        },
        "columns"_a, "rows"_a, names...);
    m.def(
        "flatten_columns",
        [launch](const py::sequence& columns, std::uintptr_t offsets, std::int64_t rows, std::int64_t out_size,
                 Extra... extra) {
            FlattenColumns call;
            call.offsets = array<const std::int64_t>(offsets, rows + 1);
            call.rows = rows;
            call.out_size = flat_size(rows, out_size);
            read_columns(columns, &call,
                         [&](const py::tuple& column) { return flat_column_of(column, rows, out_size); });
            launch(call, extra...);
        },
        "columns"_a, "offsets"_a, "rows"_a, "out_size"_a, names...);
    m.def(
        "unpad",
        [launch](std::uintptr_t padded, std::uintptr_t offsets, std::int64_t rows, std::int64_t width, Side left,
                 std::size_t item, std::int64_t inner, std::uintptr_t out, std::int64_t out_size, Extra... extra) {
            const std::int64_t tokens = padded_size(rows, width);
            require_tokens(tokens, inner, item);
            require_tokens(flat_size(rows, out_size), inner, item);
            launch(Unpad{rows_of(offsets, rows, width, left), pointer<const void>(padded, item, tokens * inner), inner,
                         item, pointer<void>(out, item, out_size * inner), out_size},
                   extra...);
        },
        "padded"_a, "offsets"_a, "rows"_a, "width"_a, "left"_a, "item"_a, "inner"_a, "out"_a, "out_size"_a, names...);
    m.def(
        "mask_layout",
        [launch](std::uintptr_t mask, std::size_t item, std::int64_t rows, std::int64_t width, std::uintptr_t state,
                 std::uintptr_t indices, std::uintptr_t cu_seqlens, std::uintptr_t lengths, Extra... extra) {
            require_item(item);
            const std::int64_t size = padded_size(rows, width);
            require(size > 0, "a mask must have elements");
            auto* const first = array<std::uint64_t>(state, 1);
            auto* const facts = reinterpret_cast<MaskState*>(first);
            launch(MaskLayout{pointer<const void>(mask, item, size), item, rows, width, facts,
                              first + sizeof(MaskState) / sizeof *first, array<std::int64_t>(indices, size),
                              array<std::int32_t>(cu_seqlens, rows + 1), array<std::int32_t>(lengths, rows)},
                   extra...);
        },
        "mask"_a, "item"_a, "rows"_a, "width"_a, "state"_a, "indices"_a, "cu_seqlens"_a, "lengths"_a, names...);
    m.def(
        "take_tokens",
        [launch](std::uintptr_t values, std::int64_t size, std::int64_t token, std::uintptr_t indices,
                 std::int64_t count, std::uintptr_t out, Extra... extra) {
            const std::int64_t in_bytes = padded_size(size, token), out_bytes = padded_size(count, token);
            launch(TakeTokens{pointer<const void>(values, 1, in_bytes), size, token,
                              array<const std::int64_t>(indices, count), count, pointer<void>(out, 1, out_bytes)},
                   extra...);
        },
        "values"_a, "size"_a, "token"_a, "indices"_a, "count"_a, "out"_a, names...);
    m.def(
        "row_keys",
        [launch](std::uintptr_t values, std::int64_t values_size, std::uintptr_t offsets, std::int64_t rows,
                 std::int64_t width, Side left, bool flat, std::uintptr_t out, Extra... extra) {
            static_cast<void>(padded_size(1, values_size));
            require(flat || padded_size(rows, width) == values_size, "rows * width must be values_size");
            launch(RowKeys{rows_of(offsets, rows, width, left), array<const std::int64_t>(values, values_size),
                           values_size, flat, array<std::uint64_t>(out, padded_size(rows, 1))},
                   extra...);
        },
        "values"_a, "values_size"_a, "offsets"_a, "rows"_a, "width"_a, "left"_a, "flat"_a, "out"_a, names...);
    m.def(
        "philox_mask",
        [launch](const PhiloxOptions& options, std::uintptr_t row_keys, std::uintptr_t offsets, std::int64_t rows,
                 std::int64_t width, Side left, bool flat, std::uintptr_t words, std::uintptr_t set,
                 std::int64_t set_size, std::uintptr_t ids, std::uintptr_t labels, std::int64_t out_size, bool pads,
                 std::uintptr_t values, std::int64_t values_size, std::int64_t fill, std::uintptr_t attention_mask,
                 Extra... extra) {
            static_cast<void>(padded_size(1, out_size));
            require(flat ? flat_size(rows, out_size) == out_size : padded_size(rows, width) == out_size,
                    "rows * width must be out_size");
            require(!pads || !(flat || words != 0), "only rows of single words are padded");
            launch(PhiloxMask{rows_of(offsets, rows, width, left), checked_masking(options),
                              array<const std::uint64_t>(row_keys, rows),
                              array<const std::uint64_t>(set, padded_size(1, set_size)), set_size,
                              words == 0 ? nullptr : array<const std::uint8_t>(words, out_size),
                              array<std::int64_t>(ids, out_size), array<std::int64_t>(labels, out_size), out_size, flat,
                              pads, array<const std::int64_t>(values, pads ? padded_size(1, values_size) : 0),
                              values_size, fill, array<std::int64_t>(attention_mask, 0)},
                   extra...);
        },
        "options"_a, "row_keys"_a, "offsets"_a, "rows"_a, "width"_a, "left"_a, "flat"_a, "words"_a, "set"_a,
        "set_size"_a, "ids"_a, "labels"_a, "out_size"_a, "pads"_a, "values"_a, "values_size"_a, "fill"_a,
        "attention_mask"_a, names...);
}

}  // namespace quadrat::cuda
