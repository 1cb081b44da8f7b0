#include "launch.cuh"
#include "seq_idx.cuh"

namespace quadrat::cuda {

cudaError_t launch(const SeqIdx& call, cudaStream_t stream) { return start_pieces(seq_idx, call, stream); }

}  // namespace quadrat::cuda
