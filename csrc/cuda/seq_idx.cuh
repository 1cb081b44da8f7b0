// seq_idx: which row each token of a flat batch belongs to; -1 after the last row.
#pragma once

#include "flat_rows.cuh"

namespace quadrat::cuda {

__global__ void QUADRAT_PIECE_BOUNDS seq_idx(SeqIdx call) {
    write_long_rows(
        call.pieces, blockIdx.x, {4, ~std::uint64_t{0}, 0, ~Address{0}},
        [&](std::int64_t row) { return flat_region(call.offsets, row, call.rows, call.out, call.out_size, 4); },
        [](std::int64_t row, const Region&, const Piece&) {
            return Same{repeated(static_cast<std::uint64_t>(row), 4)};
        });
}

}  // namespace quadrat::cuda
