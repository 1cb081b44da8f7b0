// position_ids: where in its row each token of a flat batch stands; the last row with tokens goes on to the end.
#pragma once

#include "flat_rows.cuh"

namespace quadrat::cuda {

__global__ void QUADRAT_PIECE_BOUNDS position_ids(PositionIds call) {
    write_long_rows(
        call.pieces, blockIdx.x, {8, 0, 0, ~Address{0}},
        [&](std::int64_t row) { return positions_region(call.offsets, row, call.rows, call.out, call.out_size); },
        [&](std::int64_t, const Region& region, const Piece& piece) {
            return positions_from(call.start, region, piece);
        });
}

}  // namespace quadrat::cuda
