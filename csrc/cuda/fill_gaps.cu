#include "fill_gaps.cuh"
#include "launch.cuh"

namespace quadrat::cuda {

cudaError_t launch(const FillGaps& call, cudaStream_t stream) {
    return with_element(call.item, [&](auto element) { return start(fill_gaps<decltype(element)>, call, stream); });
}

}  // namespace quadrat::cuda
