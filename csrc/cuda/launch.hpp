// Queues a kernel on a stream and returns at once. Nothing is allocated or waited for, so that CUDA graphs capture it.
// The call's pointers must stay valid until the stream has got that far.
#pragma once

#include <cuda_runtime_api.h>

#include "calls.hpp"

namespace quadrat::cuda {

template <typename Call>
cudaError_t launch(const Call& call, cudaStream_t stream);

}  // namespace quadrat::cuda
