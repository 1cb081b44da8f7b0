#include "attention_mask.cuh"
#include "launch.cuh"

namespace quadrat::cuda {

cudaError_t launch(const AttentionMask& call, cudaStream_t stream) {
    return start_pieces(attention_mask, call, stream);
}

}  // namespace quadrat::cuda
