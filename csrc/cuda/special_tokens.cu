#include "launch.cuh"
#include "special_tokens.cuh"

namespace quadrat::cuda {

cudaError_t launch(const SpecialTokens& call, cudaStream_t stream) { return start(special_tokens, call, stream); }

}  // namespace quadrat::cuda
