#include "launch.cuh"
#include "unpad.cuh"

namespace quadrat::cuda {

cudaError_t launch(const Unpad& call, cudaStream_t stream) { return start_pieces(unpad, call, stream); }

}  // namespace quadrat::cuda
