#include "launch.cuh"
#include "row_keys.cuh"

namespace quadrat::cuda {

cudaError_t launch(const RowKeys& call, cudaStream_t stream) {
    const auto bytes = static_cast<std::size_t>(call.rows) * sizeof(std::uint64_t);
    const cudaError_t error = cudaMemsetAsync(call.out, 0, bytes, stream);
    return error == cudaSuccess ? start(row_keys, call, stream) : error;
}

}  // namespace quadrat::cuda
