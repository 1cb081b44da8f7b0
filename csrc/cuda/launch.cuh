// What the launchers have in common.
#pragma once

#include "launch.hpp"
#include "shape.hpp"

namespace quadrat::cuda {

template <typename Call>
cudaError_t start(void (*kernel)(Call), const Call& call, cudaStream_t stream) {
    if (call.rows == 0) {
        return cudaSuccess;  // a grid without blocks is an error
    }
    const Shape shape = launch_shape(call.rows, typical_width(call));
    const dim3 blocks(shape.blocks_x, shape.blocks_y);
    const dim3 threads(shape.threads_x, shape.threads_y);
    kernel<<<blocks, threads, 0, stream>>>(call);
    return cudaGetLastError();
}

}  // namespace quadrat::cuda
