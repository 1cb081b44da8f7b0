#include "launch.cuh"
#include "word_starts.cuh"

namespace quadrat::cuda {

cudaError_t launch(const WordStarts& call, cudaStream_t stream) { return start(word_starts, call, stream); }

cudaError_t launch(const WordStartsOfIds& call, cudaStream_t stream) { return start(word_starts_of_ids, call, stream); }

}  // namespace quadrat::cuda
