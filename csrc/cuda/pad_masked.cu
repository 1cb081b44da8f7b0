#include "launch.cuh"
#include "pad_masked.cuh"

namespace quadrat::cuda {

cudaError_t launch(const PadMasked& call, cudaStream_t stream) { return start(pad_masked, call, stream); }

}  // namespace quadrat::cuda
