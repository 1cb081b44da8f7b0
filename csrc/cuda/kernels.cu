#include "launch.hpp"
#include "launchers.hpp"

namespace quadrat::cuda {
namespace {

struct StreamQueue {
    using Error = cudaError_t;
    static constexpr Error success = cudaSuccess;
    static constexpr Error too_many_blocks = cudaErrorInvalidConfiguration;
    static constexpr std::int64_t most_blocks = cuda::most_blocks;
    static constexpr int piece_log = cuda::piece_log;

    cudaStream_t stream;

    template <typename Call>
    Error run(void (*kernel)(Call), const Shape& shape, const Call& call) const {
        const dim3 blocks(shape.blocks_x, shape.blocks_y);
        const dim3 threads(shape.threads_x, shape.threads_y);
        kernel<<<blocks, threads, 0, stream>>>(call);
        return cudaGetLastError();
    }

    Error clear(void* out, std::size_t bytes) const { return cudaMemsetAsync(out, 0, bytes, stream); }
};

}  // namespace

template <typename Call>
cudaError_t launch(const Call& call, cudaStream_t stream) {
    return launch_on(StreamQueue{stream}, call);
}

template cudaError_t launch(const PadColumns&, cudaStream_t);
template cudaError_t launch(const FlattenColumns&, cudaStream_t);
template cudaError_t launch(const Unpad&, cudaStream_t);
template cudaError_t launch(const MaskLayout&, cudaStream_t);
template cudaError_t launch(const TakeTokens&, cudaStream_t);
template cudaError_t launch(const CausalLabels&, cudaStream_t);
template cudaError_t launch(const RowKeys&, cudaStream_t);
template cudaError_t launch(const PhiloxMask&, cudaStream_t);

}  // namespace quadrat::cuda
