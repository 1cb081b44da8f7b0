#include "launch.cuh"
#include "philox_mask.cuh"

namespace quadrat::cuda {

cudaError_t launch(const PhiloxMask& call, cudaStream_t stream) { return start(philox_mask, call, stream); }

}  // namespace quadrat::cuda
