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
