#include "launch.cuh"
#include "pad_columns.cuh"

namespace quadrat::cuda {

cudaError_t launch(const PadColumns& call, cudaStream_t stream) {
    if (call.count == 1) {
        return start_pieces(pad_columns<1>, SomeColumns<1>{call.rows, 1, {call.columns[0]}}, stream);
    }
    return start_pieces(pad_columns<most_columns>, call, stream);
}

}  // namespace quadrat::cuda
