// The launchers: each queues one kernel on a stream and returns at once. They allocate nothing and wait for nothing, so
// that CUDA graphs capture them. The call's pointers must stay valid until the stream has got that far.
#pragma once

#include <cuda_runtime_api.h>

#include "calls.hpp"

namespace quadrat::cuda {

cudaError_t launch(const CopyRows& call, cudaStream_t stream);
cudaError_t launch(const PadColumns& call, cudaStream_t stream);
cudaError_t launch(const FlattenColumns& call, cudaStream_t stream);
cudaError_t launch(const Unpad& call, cudaStream_t stream);
cudaError_t launch(const SeparateRows& call, cudaStream_t stream);
cudaError_t launch(const CausalLabels& call, cudaStream_t stream);
cudaError_t launch(const RowKeys& call, cudaStream_t stream);
cudaError_t launch(const PadMasked& call, cudaStream_t stream);
cudaError_t launch(const PhiloxMask& call, cudaStream_t stream);

}  // namespace quadrat::cuda
