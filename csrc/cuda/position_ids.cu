#include "launch.cuh"
#include "position_ids.cuh"

namespace quadrat::cuda {

cudaError_t launch(const PositionIds& call, cudaStream_t stream) { return start_pieces(position_ids, call, stream); }

}  // namespace quadrat::cuda
