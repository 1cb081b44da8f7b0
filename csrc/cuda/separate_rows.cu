#include "launch.cuh"
#include "separate_rows.cuh"

namespace quadrat::cuda {

cudaError_t launch(const SeparateRows& call, cudaStream_t stream) {
    return with_element(call.item, [&](auto element) { return start(separate_rows<decltype(element)>, call, stream); });
}

}  // namespace quadrat::cuda
