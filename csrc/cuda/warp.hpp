// What the threads of a warp do together. In the emulation, where threads run one after the other, a warp is one
// thread.
#pragma once

#include <cstdint>

#include "kernel.cuh"

namespace quadrat::cuda {

#if defined(__CUDACC__)
inline constexpr std::int64_t warp_lanes = 32;
#else
inline constexpr std::int64_t warp_lanes = 1;
#endif

// A bit for each lane, that of lane 0 the lowest.
__device__ inline unsigned ballot(bool holds) {
#if defined(__CUDACC__)
    return __ballot_sync(0xFFFFFFFFU, holds ? 1 : 0);
#else
    return holds ? 1 : 0;
#endif
}

__device__ inline int count_bits(unsigned word) {
#if defined(__CUDACC__)
    return __popc(word);
#else
    return static_cast<int>(word);
#endif
}

// The number of the lowest bit that is 1 of a word that has one.
__device__ inline int lowest_bit([[maybe_unused]] unsigned word) {
#if defined(__CUDACC__)
    return __ffs(static_cast<int>(word)) - 1;
#else
    return 0;
#endif
}

// The same sum for each lane.
__device__ inline std::uint64_t sum_of_lanes(std::uint64_t value) {
#if defined(__CUDACC__)
    for (int distance = static_cast<int>(warp_lanes) / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xFFFFFFFFU, static_cast<unsigned long long>(value), distance);
    }
#endif
    return value;
}

// What lane 0 has.
__device__ inline std::uint64_t first_of_lanes(std::uint64_t value) {
#if defined(__CUDACC__)
    return __shfl_sync(0xFFFFFFFFU, static_cast<unsigned long long>(value), 0);
#else
    return value;
#endif
}

}  // namespace quadrat::cuda
