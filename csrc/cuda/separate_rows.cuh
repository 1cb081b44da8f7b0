// separate_rows: one value at the start of every row of a flat batch. Starts outside the output are left out.
#pragma once

#include "kernel.cuh"

namespace quadrat::cuda {

template <typename T>
__global__ void separate_rows(SeparateRows call) {
    const Share rows = share_of_rows();
    if (share_of_elements().first > 0) {
        return;  // one element a row
    }
    for (std::int64_t row = rows.first; row < call.rows; row += rows.step) {
        if (flat_run(call.start[row], 1, call.out_size).length > 0) {
            static_cast<T*>(call.out)[call.start[row]] = static_cast<T>(call.value);
        }
    }
}

}  // namespace quadrat::cuda
