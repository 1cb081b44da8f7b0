#include "launch.cuh"
#include "pad_columns.cuh"

namespace quadrat::cuda {

cudaError_t launch(const PadColumns& call, cudaStream_t stream) { return start_pieces(pad_columns, call, stream); }

}  // namespace quadrat::cuda
