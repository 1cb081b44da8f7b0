#include "cu_seqlens.cuh"
#include "launch.cuh"

namespace quadrat::cuda {

cudaError_t launch(const CuSeqlens& call, cudaStream_t stream) {
    return with_element(call.item, [&](auto element) { return start(cu_seqlens<decltype(element)>, call, stream); });
}

}  // namespace quadrat::cuda
