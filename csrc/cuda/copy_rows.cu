#include "copy_rows.cuh"
#include "launch.cuh"

namespace quadrat::cuda {

cudaError_t launch(const CopyRows& call, cudaStream_t stream) { return start_pieces(copy_rows, call, stream); }

}  // namespace quadrat::cuda
