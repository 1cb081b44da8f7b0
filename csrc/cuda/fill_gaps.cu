#include "fill_gaps.cuh"
#include "launch.cuh"

namespace quadrat::cuda {

cudaError_t launch(const FillGaps& call, cudaStream_t stream) { return start_pieces(fill_gaps, call, stream); }

}  // namespace quadrat::cuda
