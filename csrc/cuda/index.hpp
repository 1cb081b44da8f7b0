// Where things are: all index arithmetic of the kernels, in 64 bits, apart from them so that tests can reach it with
// numbers no memory holds. Nothing here overflows, whatever offsets and starts say, as long as rows * width does not.
#pragma once

#include "../kernels/simd.hpp"
#include "../kernels/types.hpp"

namespace quadrat::cuda {

// Elements [first, first + length).
struct Run {
    std::int64_t first;
    std::int64_t length;
};

QUADRAT_HOST_DEVICE inline std::int64_t clamp(std::int64_t value, std::int64_t low, std::int64_t high) {
    return value < low ? low : (value > high ? high : value);
}

// The part of a row that lies inside values of this size.
QUADRAT_HOST_DEVICE inline Run source_run(std::int64_t begin, std::int64_t end, std::int64_t size) {
    const std::int64_t first = clamp(begin, 0, size);
    return {first, clamp(end, first, size) - first};
}

// The length of a row, cut to the width.
QUADRAT_HOST_DEVICE inline std::int64_t row_length(std::int64_t begin, std::int64_t end, std::int64_t width) {
    if (end <= begin) {
        return 0;
    }
    // Unsigned: the distance between two int64 need not fit one.
    const std::uint64_t length = static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(begin);
    return length < static_cast<std::uint64_t>(width) ? static_cast<std::int64_t>(length) : width;
}

// The place of a row in a padded output; one longer than the width is cut at its end.
QUADRAT_HOST_DEVICE inline Run padded_run(std::int64_t row, std::int64_t length, std::int64_t width, Side side) {
    const std::int64_t kept = clamp(length, 0, width);
    return {row * width + (side == Side::left ? width - kept : 0), kept};
}

// What a row leaves free of its place in a padded output.
QUADRAT_HOST_DEVICE inline Run gap_run(std::int64_t row, std::int64_t length, std::int64_t width, Side side) {
    const std::int64_t kept = clamp(length, 0, width);
    return {row * width + (side == Side::left ? 0 : kept), width - kept};
}

// The place of a row in a flat output that begins where the offsets begin; what runs past the end is cut.
QUADRAT_HOST_DEVICE inline Run token_run(std::int64_t begin, std::int64_t end, std::int64_t origin, std::int64_t size) {
    // Unsigned: the distance between two int64 need not fit one.
    const std::uint64_t first = static_cast<std::uint64_t>(begin) - static_cast<std::uint64_t>(origin);
    if (begin < origin || first > static_cast<std::uint64_t>(size)) {
        return {0, 0};
    }
    return {static_cast<std::int64_t>(first), row_length(begin, end, size - static_cast<std::int64_t>(first))};
}

// Both not negative, divisor at least 1. Dividing 64 bits takes several times as long as 32, and is seldom called for.
QUADRAT_HOST_DEVICE inline std::int64_t quotient(std::int64_t dividend, std::int64_t divisor) {
    if (divisor == 1) {
        return dividend;
    }
    if ((dividend | divisor) >> 32 == 0) {
        return static_cast<std::uint32_t>(dividend) / static_cast<std::uint32_t>(divisor);
    }
    return dividend / divisor;
}

// The number of a thread among those of all blocks, along one axis.
QUADRAT_HOST_DEVICE inline std::int64_t thread_number(unsigned block, unsigned threads, unsigned thread) {
    return static_cast<std::int64_t>(block) * threads + thread;
}

}  // namespace quadrat::cuda
