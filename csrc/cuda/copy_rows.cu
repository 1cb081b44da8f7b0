#include "copy_rows.cuh"
#include "launch.cuh"

namespace quadrat::cuda {

cudaError_t launch(const CopyRows& call, cudaStream_t stream) {
    return with_element(call.item, [&](auto element) { return start(copy_rows<decltype(element)>, call, stream); });
}

}  // namespace quadrat::cuda
