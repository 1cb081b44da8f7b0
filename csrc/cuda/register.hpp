// The kernels as Python functions, the same for _cuda and _emulated. All the host can check is checked here; none of it
// looks at device memory.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <limits>
#include <stdexcept>

#include "../bindings/masking_options.hpp"
#include "calls.hpp"

namespace quadrat::cuda {

namespace py = pybind11;

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

inline const std::int64_t* offsets_pointer(std::uintptr_t address, std::int64_t rows) {
    return pointer<const std::int64_t>(address, sizeof(std::int64_t), rows);
}

// The size of a flat output, and that there is a row to say what its places are.
inline std::int64_t flat_size(std::int64_t rows, std::int64_t out_size) {
    require(rows >= 0 && out_size >= 0, "rows and out_size must not be negative");
    require(rows > 0 || out_size == 0, "an output without rows must be empty");
    return out_size;
}

inline Side side_of(bool left) { return left ? Side::left : Side::right; }

template <typename... Extra, typename Launch, typename... Names>
void register_philox(py::module_& m, Launch launch, const Names&... names) {
    m.def(
        "pad_masked",
        [launch](const PhiloxOptions& options, std::uintptr_t row_keys, std::uintptr_t values, std::int64_t values_size,
                 std::uintptr_t offsets, std::int64_t rows, std::int64_t width, bool left, std::uintptr_t set,
                 std::int64_t set_size, std::int64_t fill, std::uintptr_t ids, std::uintptr_t labels,
                 std::uintptr_t attention_mask, Extra... extra) {
            const std::int64_t size = padded_size(rows, width);
            launch(PadMasked{checked_masking(options), array<const std::uint64_t>(row_keys, rows),
                             array<const std::int64_t>(values, padded_size(1, values_size)), values_size,
                             offsets_pointer(offsets, rows), rows, width, side_of(left),
                             array<const std::uint64_t>(set, padded_size(1, set_size)), set_size, fill,
                             array<std::int64_t>(ids, size), array<std::int64_t>(labels, size),
                             array<std::int64_t>(attention_mask, 0)},
                   extra...);
        },
        py::arg("options"), py::arg("row_keys"), py::arg("values"), py::arg("values_size"), py::arg("offsets"),
        py::arg("rows"), py::arg("width"), py::arg("left"), py::arg("set"), py::arg("set_size"), py::arg("fill"),
        py::arg("ids"), py::arg("labels"), py::arg("attention_mask"), names...);
    m.def(
        "row_keys",
        [launch](std::uintptr_t values, std::int64_t values_size, std::uintptr_t offsets, std::int64_t rows,
                 std::int64_t width, bool left, bool flat, std::uintptr_t out, Extra... extra) {
            static_cast<void>(padded_size(1, values_size));
            require(flat || padded_size(rows, width) == values_size, "rows * width must be values_size");
            launch(RowKeys{array<const std::int64_t>(values, values_size), values_size, offsets_pointer(offsets, rows),
                           rows, width, side_of(left), flat, array<std::uint64_t>(out, padded_size(rows, 1))},
                   extra...);
        },
        py::arg("values"), py::arg("values_size"), py::arg("offsets"), py::arg("rows"), py::arg("width"),
        py::arg("left"), py::arg("flat"), py::arg("out"), names...);
    m.def(
        "philox_mask",
        [launch](const PhiloxOptions& options, std::uintptr_t row_keys, std::uintptr_t offsets, std::int64_t rows,
                 std::int64_t width, bool left, bool flat, std::uintptr_t words, std::uintptr_t set,
                 std::int64_t set_size, std::uintptr_t ids, std::uintptr_t labels, std::int64_t out_size,
                 Extra... extra) {
            static_cast<void>(padded_size(1, out_size));
            require(flat ? flat_size(rows, out_size) == out_size : padded_size(rows, width) == out_size,
                    "rows * width must be out_size");
            launch(PhiloxMask{checked_masking(options), array<const std::uint64_t>(row_keys, rows),
                              offsets_pointer(offsets, rows), rows, width, side_of(left), flat,
                              words == 0 ? nullptr : array<const std::uint8_t>(words, out_size),
                              array<const std::uint64_t>(set, padded_size(1, set_size)), set_size,
                              array<std::int64_t>(ids, out_size), array<std::int64_t>(labels, out_size), out_size},
                   extra...);
        },
        py::arg("options"), py::arg("row_keys"), py::arg("offsets"), py::arg("rows"), py::arg("width"), py::arg("left"),
        py::arg("flat"), py::arg("words"), py::arg("set"), py::arg("set_size"), py::arg("ids"), py::arg("labels"),
        py::arg("out_size"), names...);
}

// launch(call, extra...) carries one call out; the last parameters of the functions are `extra`, named by `names`.
template <typename... Extra, typename Launch, typename... Names>
void register_kernels(py::module_& m, Launch launch, const Names&... names) {
    m.def(
        "copy_rows",
        [launch](std::uintptr_t values, std::int64_t values_size, std::uintptr_t offsets, std::int64_t rows,
                 std::uintptr_t start, std::size_t item, std::uintptr_t out, std::int64_t out_size, Extra... extra) {
            require_item(item);
            require(values_size >= 0 && out_size >= 0, "a size is negative");
            static_cast<void>(padded_size(rows, 1));
            launch(CopyRows{pointer<const void>(values, item, values_size), values_size, offsets_pointer(offsets, rows),
                            rows, offsets_pointer(start, rows), item, pointer<void>(out, item, out_size), out_size},
                   extra...);
        },
        py::arg("values"), py::arg("values_size"), py::arg("offsets"), py::arg("rows"), py::arg("start"),
        py::arg("item"), py::arg("out"), py::arg("out_size"), names...);
    m.def(
        "separate_rows",
        [launch](std::uintptr_t start, std::int64_t rows, std::size_t item, std::uint64_t value, std::uintptr_t out,
                 std::int64_t out_size, Extra... extra) {
            require_item(item);
            require(rows >= 0 && out_size >= 0, "rows and out_size must not be negative");
            launch(SeparateRows{offsets_pointer(start, rows), rows, item, value, pointer<void>(out, item, out_size),
                                out_size},
                   extra...);
        },
        py::arg("start"), py::arg("rows"), py::arg("item"), py::arg("value"), py::arg("out"), py::arg("out_size"),
        names...);
    m.def(
        "causal_labels",
        [launch](std::uintptr_t ids, std::int64_t count, std::int64_t pad_id, std::uintptr_t labels, Extra... extra) {
            launch(CausalLabels{array<const std::int64_t>(ids, padded_size(1, count)), count, pad_id,
                                array<std::int64_t>(labels, count)},
                   extra...);
        },
        py::arg("ids"), py::arg("count"), py::arg("pad_id"), py::arg("labels"), names...);
    register_philox<Extra...>(m, launch, names...);
}

}  // namespace quadrat::cuda
