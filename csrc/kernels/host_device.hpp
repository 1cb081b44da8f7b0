// QUADRAT_HOST_DEVICE marks what the GPU's kernels compute with the same source as the CPU's.
#pragma once

#if defined(__CUDACC__)
#define QUADRAT_HOST_DEVICE __host__ __device__
#else
#define QUADRAT_HOST_DEVICE
#endif
