#include "attention_mask.cuh"
#include "launch.cuh"

namespace quadrat::cuda {

cudaError_t launch(const AttentionMask& call, cudaStream_t stream) {
    return with_element(call.item,
                        [&](auto element) { return start(attention_mask<decltype(element)>, call, stream); });
}

}  // namespace quadrat::cuda
