// Just enough of CUDA for the kernels to compile as C++ and run on the CPU, one thread after the other: how they are
// tested, under sanitizers too, where there is no GPU. There is no barrier and no shared memory: no kernel needs them.
#pragma once

#include <cstdint>

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's own names
#define __global__
#define __device__
#define __launch_bounds__(threads, blocks)
// NOLINTEND(bugprone-reserved-identifier)

namespace quadrat::cuda {

// A warp is one thread.
inline constexpr std::int64_t warp_lanes = 1;

inline unsigned ballot(bool holds) { return holds ? 1 : 0; }
inline int count_bits(unsigned word) { return static_cast<int>(word); }
inline int lowest_bit(unsigned) { return 0; }
inline std::uint64_t sum_of_lanes(std::uint64_t value) { return value; }
inline std::uint64_t first_of_lanes(std::uint64_t value) { return value; }

struct Dim2 {
    unsigned x, y;
};

inline thread_local Dim2 threadIdx, blockIdx, blockDim, gridDim;

inline unsigned long long atomicAdd(unsigned long long* target, unsigned long long value) {
    const unsigned long long before = *target;
    *target += value;
    return before;
}
inline void atomicMax(unsigned long long* target, unsigned long long value) {
    *target = value > *target ? value : *target;
}

// Which of the blocks along x run: a test of a huge output looks at a few.
struct BlockRange {
    unsigned first, last;  // the last excluded
};

template <typename Call>
void emulate(void (*kernel)(Call), Dim2 blocks, Dim2 threads, BlockRange range, const Call& call) {
    gridDim = blocks;
    blockDim = threads;
    const unsigned last = range.last < blocks.x ? range.last : blocks.x;
    for (blockIdx.y = 0; blockIdx.y < blocks.y; ++blockIdx.y) {
        for (blockIdx.x = range.first; blockIdx.x < last; ++blockIdx.x) {
            for (threadIdx.y = 0; threadIdx.y < threads.y; ++threadIdx.y) {
                for (threadIdx.x = 0; threadIdx.x < threads.x; ++threadIdx.x) {
                    kernel(call);
                }
            }
        }
    }
}

}  // namespace quadrat::cuda
