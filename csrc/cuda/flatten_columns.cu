#include "flatten_columns.cuh"
#include "launch.cuh"

namespace quadrat::cuda {

cudaError_t launch(const FlattenColumns& call, cudaStream_t stream) {
    return start_pieces(flatten_columns, call, stream);
}

}  // namespace quadrat::cuda
