// How many threads a kernel is started with, and of which type: what both launchers, CUDA's and the emulated, share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "calls.hpp"

namespace quadrat::cuda {

// Threads of a block: x along a row, y among rows. Blocks: x among rows, of which there may be more, y along them.
struct Shape {
    unsigned threads_x, threads_y;
    unsigned blocks_x, blocks_y;
};

// Enough to fill any GPU several times over, and as many as the y axis takes; beyond that a thread has a larger share.
inline constexpr std::int64_t most_blocks = 65535;

// rows, max_blocks: at least 1. Short rows share a block, a warp or more each.
inline Shape launch_shape(std::int64_t rows, std::int64_t width, std::int64_t max_blocks = most_blocks) {
    constexpr unsigned block = 256;
    unsigned threads = 32;
    while (threads < block && threads < width) {
        threads *= 2;
    }
    const std::int64_t down = std::min((rows - 1) / (block / threads) + 1, max_blocks);
    const std::int64_t across = std::min((std::max<std::int64_t>(width, 1) - 1) / threads + 1, max_blocks / down);
    return {threads, block / threads, static_cast<unsigned>(down), static_cast<unsigned>(across)};
}

// The width of a typical row decides. The rows of a flat output may have any length, so there it is the mean.
inline std::int64_t typical_width(const CopyRows& call) {
    return call.start == nullptr ? call.width : call.values_size / call.rows;
}

inline std::int64_t typical_width(const PositionIds& call) { return call.out_size / call.rows; }
inline std::int64_t typical_width(const SeqIdx& call) { return call.out_size / call.rows; }
inline std::int64_t typical_width(const CuSeqlens&) { return 1; }
inline std::int64_t typical_width(const SeparateRows&) { return 1; }
inline std::int64_t typical_width(const CausalLabels& call) { return call.count; }
inline std::int64_t typical_width(const SpecialTokens& call) { return call.count; }
inline std::int64_t typical_width(const RowKeys& call) { return call.values_size / call.rows; }
inline std::int64_t typical_width(const PhiloxMask& call) { return call.out_size / call.rows / 4; }  // four a thread

template <typename Call>
std::int64_t typical_width(const Call& call) {
    return call.width;
}

// Calls f with an element of `item` bytes, which tells it the type.
template <typename F>
auto with_element(std::size_t item, F&& f) {
    switch (item) {
        case 1:
            return f(std::uint8_t{});
        case 2:
            return f(std::uint16_t{});
        case 4:
            return f(std::uint32_t{});
        default:
            return f(std::uint64_t{});
    }
}

}  // namespace quadrat::cuda
