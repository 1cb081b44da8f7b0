// copy_rows: row i of a ragged column to its place in a flat or padded output. What does not fit is cut, where the
// CPU's kernel reports it: a report would cost a synchronisation.
#pragma once

#include "kernel.cuh"

namespace quadrat::cuda {

template <typename T>
__global__ void copy_rows(CopyRows call) {
    const T* const __restrict__ values = static_cast<const T*>(call.values);
    T* const __restrict__ out = static_cast<T*>(call.out);
    const Share rows = share_of_rows();
    const Share elements = share_of_elements();
    for (std::int64_t row = rows.first; row < call.rows; row += rows.step) {
        const Run source = source_run(call.offsets[row], call.offsets[row + 1], call.values_size);
        const Run target = call.start == nullptr ? padded_run(row, source.length, call.width, call.side)
                                                 : flat_run(call.start[row], source.length, call.out_size);
        for (std::int64_t k = elements.first; k < target.length; k += elements.step) {
            out[target.first + k] = values[source.first + k];
        }
    }
}

}  // namespace quadrat::cuda
