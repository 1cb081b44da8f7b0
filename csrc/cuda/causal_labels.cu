#include "causal_labels.cuh"
#include "launch.cuh"

namespace quadrat::cuda {

cudaError_t launch(const CausalLabels& call, cudaStream_t stream) { return start(causal_labels, call, stream); }

}  // namespace quadrat::cuda
