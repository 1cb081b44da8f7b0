// fill_gaps: the blanks that fill a ragged batch out to full measure. Writes what copy_rows leaves free, nothing else.
#pragma once

#include "kernel.cuh"

namespace quadrat::cuda {

template <typename T>
__global__ void fill_gaps(FillGaps call) {
    T* const __restrict__ out = static_cast<T*>(call.out);
    const T value = static_cast<T>(call.value);
    const Share rows = share_of_rows();
    const Share elements = share_of_elements();
    for (std::int64_t row = rows.first; row < call.rows; row += rows.step) {
        const std::int64_t length = row_length(call.offsets[row], call.offsets[row + 1], call.width);
        const Run gap = gap_run(row, length, call.width, call.side);
        for (std::int64_t k = elements.first; k < gap.length; k += elements.step) {
            out[gap.first + k] = value;
        }
    }
}

}  // namespace quadrat::cuda
