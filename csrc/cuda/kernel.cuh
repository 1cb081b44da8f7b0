// What every kernel starts from, as CUDA or, without a CUDA compiler, as C++.
#pragma once

#include "calls.hpp"
#include "index.hpp"

#if defined(__CUDACC__)
#define QUADRAT_UNROLL _Pragma("unroll")
#else
#include "emulate.hpp"
#define QUADRAT_UNROLL
#endif

// Parameters that are indexed: read where they are, not copied to each thread's stack.
#if defined(__CUDACC__) && (__CUDACC_VER_MAJOR__ > 11 || (__CUDACC_VER_MAJOR__ == 11 && __CUDACC_VER_MINOR__ >= 7))
#define QUADRAT_GRID_CONSTANT __grid_constant__
#else
#define QUADRAT_GRID_CONSTANT
#endif

namespace quadrat::cuda {

// What the threads of a warp do together: a bit for each lane, that of lane 0 the lowest; the number of the lowest bit
// that is 1 of a word that has one; the same sum for each lane; what lane 0 has.
#if defined(__CUDACC__)
inline constexpr std::int64_t warp_lanes = 32;

__device__ inline unsigned ballot(bool holds) { return __ballot_sync(0xFFFFFFFFU, holds ? 1 : 0); }
__device__ inline int count_bits(unsigned word) { return __popc(word); }
__device__ inline int lowest_bit(unsigned word) { return __ffs(static_cast<int>(word)) - 1; }
__device__ inline std::uint64_t sum_of_lanes(std::uint64_t value) {
    for (int distance = static_cast<int>(warp_lanes) / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xFFFFFFFFU, static_cast<unsigned long long>(value), distance);
    }
    return value;
}
__device__ inline std::uint64_t first_of_lanes(std::uint64_t value) {
    return __shfl_sync(0xFFFFFFFFU, static_cast<unsigned long long>(value), 0);
}
#endif

// The first row or element that falls to this thread, and the distance to its next.
struct Share {
    std::int64_t first;
    std::int64_t step;
};

// Rows and elements have an axis each (see shape.hpp), so that no thread divides an index by the width.
__device__ inline Share share_of_rows() {
    return {thread_number(blockIdx.x, blockDim.y, threadIdx.y), thread_number(gridDim.x, blockDim.y, 0)};
}

__device__ inline Share share_of_elements() {
    return {thread_number(blockIdx.y, blockDim.x, threadIdx.x), thread_number(gridDim.y, blockDim.x, 0)};
}

// The same where there is one row only: the threads of all rows of a block work along it.
__device__ inline Share share_of_one_row() {
    const unsigned threads = blockDim.x * blockDim.y;
    return {thread_number(blockIdx.y, threads, threadIdx.y * blockDim.x + threadIdx.x),
            thread_number(gridDim.y, threads, 0)};
}

}  // namespace quadrat::cuda
