// Rows: the one idea of the data flow. Wherever a ragged row came from, it is a pointer, a length and an element kind.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kind.hpp"
#include "span.hpp"

namespace quadrat {

// A view of one row; it owns nothing. `stride` is the distance between elements in bytes, negative ones included.
struct Row {
    const void* data = nullptr;
    std::int64_t length = 0;
    std::int64_t stride = 0;
    Kind kind = Kind::int64;
};

enum class Side : std::uint8_t { right, left };

// Where row i of a padded output begins, in elements: padding on the right leaves the row at the front.
inline std::int64_t padded_start(std::int64_t i, std::int64_t length, std::int64_t width, Side side) {
    return i * width + (side == Side::left ? width - length : 0);
}

template <typename Integer>
Integer round_up(Integer value, Integer multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// Where rows begin that lie one after the other, and where the last one ends: out[lengths.size + 1]. Each takes `least`
// places at least.
inline void row_offsets(Span<const std::int64_t> lengths, std::int64_t least, std::int64_t* out) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < lengths.size; ++i) {
        out[i] = sum;
        sum += std::max(lengths[i], least);
    }
    out[lengths.size] = sum;
}

}  // namespace quadrat
