// What each kernel is called with. Addresses are the device's; the bindings have checked what the host can check, and
// the kernels guard against the rest, which only the device can see: the offsets and starts themselves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../kernels/row.hpp"

namespace quadrat::cuda {

// Rows have `item` bytes per element and lie in `values` between offsets[i] and offsets[i + 1], both in elements.
struct CopyRows {
    const void* values;
    std::int64_t values_size;
    const std::int64_t* offsets;  // [rows + 1]
    std::int64_t rows;
    const std::int64_t* start;  // [rows], or nullptr for a padded output, [rows, width]
    std::int64_t width;
    Side side;
    std::size_t item;
    void* out;
    std::int64_t out_size;
};

// out: [rows, width], contiguous. `value`: the bits of one element, in the low end.
struct FillGaps {
    const std::int64_t* offsets;
    std::int64_t rows;
    std::int64_t width;
    Side side;
    std::size_t item;
    std::uint64_t value;
    void* out;
};

// out: [rows, width], contiguous. `one`: the bits of the number 1, in the low end.
struct AttentionMask {
    const std::int64_t* offsets;
    std::int64_t rows;
    std::int64_t width;
    Side side;
    std::size_t item;
    std::uint64_t one;
    void* out;
};

// The rows of a flat batch: row i lies at offsets[i] - offsets[0].
struct PositionIds {
    const std::int64_t* offsets;  // [rows + 1]
    std::int64_t rows;
    std::int64_t start;  // the position of a row's first token
    std::int64_t* out;   // [out_size]
    std::int64_t out_size;
};

struct SeqIdx {
    const std::int64_t* offsets;  // [rows + 1]
    std::int64_t rows;
    std::int32_t* out;  // [out_size]
    std::int64_t out_size;
};

// rows: of the output, one more than the batch has.
struct CuSeqlens {
    const std::int64_t* offsets;  // [rows]
    std::int64_t rows;
    std::size_t item;
    void* out;  // [rows]
};

// value: the bits of one element, in the low end.
struct SeparateRows {
    const std::int64_t* start;  // [rows]
    std::int64_t rows;
    std::size_t item;
    std::uint64_t value;
    void* out;  // [out_size]
    std::int64_t out_size;
};

}  // namespace quadrat::cuda
