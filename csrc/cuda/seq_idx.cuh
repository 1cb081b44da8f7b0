// seq_idx: which row each token of a flat batch belongs to; -1 after the last row.
#pragma once

#include "kernel.cuh"

namespace quadrat::cuda {

__global__ void seq_idx(SeqIdx call) {
    const Share rows = share_of_rows();
    const Share elements = share_of_elements();
    const std::int64_t origin = call.offsets[0];
    for (std::int64_t row = rows.first; row < call.rows; row += rows.step) {
        const Run run = token_run(call.offsets[row], call.offsets[row + 1], origin, call.out_size);
        for (std::int64_t k = elements.first; k < run.length; k += elements.step) {
            call.out[run.first + k] = static_cast<std::int32_t>(row);
        }
        if (row == call.rows - 1) {
            for (std::int64_t k = run.first + run.length + elements.first; k < call.out_size; k += elements.step) {
                call.out[k] = -1;
            }
        }
    }
}

}  // namespace quadrat::cuda
