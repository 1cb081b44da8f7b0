// position_ids: where in its row each token of a flat batch stands; the last row with tokens goes on to the end.
#pragma once

#include "kernel.cuh"

namespace quadrat::cuda {

__global__ void position_ids(PositionIds call) {
    const Share rows = share_of_rows();
    const Share elements = share_of_elements();
    const std::int64_t origin = call.offsets[0];
    const std::int64_t last = call.offsets[call.rows];
    for (std::int64_t row = rows.first; row < call.rows; row += rows.step) {
        Run run = token_run(call.offsets[row], call.offsets[row + 1], origin, call.out_size);
        if (run.length > 0 && call.offsets[row + 1] == last) {
            run.length = call.out_size - run.first;
        }
        for (std::int64_t k = elements.first; k < run.length; k += elements.step) {
            // Unsigned: a start near the end of the numbers wraps.
            call.out[run.first + k] =
                static_cast<std::int64_t>(static_cast<std::uint64_t>(call.start) + static_cast<std::uint64_t>(k));
        }
    }
}

}  // namespace quadrat::cuda
