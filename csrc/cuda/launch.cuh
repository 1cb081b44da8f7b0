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

// The kernels that write rows in pieces: one output, or several.
template <typename Call, typename Argument>
cudaError_t start_pieces(void (*kernel)(Argument), Call call, cudaStream_t stream) {
    const std::int64_t blocks = idle(call) ? 0 : plan(call);
    if (blocks == 0) {
        return cudaSuccess;  // a grid without blocks is an error
    }
    if (blocks > most_piece_blocks) {
        return cudaErrorInvalidConfiguration;  // more rows than memory holds offsets
    }
    kernel<<<static_cast<unsigned>(blocks), piece_threads, 0, stream>>>(call);
    return cudaGetLastError();
}

}  // namespace quadrat::cuda
