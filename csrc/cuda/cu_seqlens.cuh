// cu_seqlens: where the rows of a flat batch begin, and where the last one ends. What does not fit the element wraps.
#pragma once

#include "kernel.cuh"

namespace quadrat::cuda {

template <typename T>
__global__ void cu_seqlens(CuSeqlens call) {
    const Share bounds = share_of_rows();
    const std::uint64_t origin = static_cast<std::uint64_t>(call.offsets[0]);
    if (share_of_elements().first > 0) {
        return;  // one element a row
    }
    for (std::int64_t i = bounds.first; i < call.rows; i += bounds.step) {
        static_cast<T*>(call.out)[i] = static_cast<T>(static_cast<std::uint64_t>(call.offsets[i]) - origin);
    }
}

}  // namespace quadrat::cuda
