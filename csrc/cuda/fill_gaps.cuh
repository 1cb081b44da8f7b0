// fill_gaps: the blanks that fill a ragged batch out to full measure. Writes what copy_rows leaves free, nothing else.
#pragma once

#include "write_rows.cuh"

namespace quadrat::cuda {

__global__ void QUADRAT_PIECE_BOUNDS fill_gaps(FillGaps call) {
    const int item = static_cast<int>(call.item);
    const Paint paint{item, repeated(call.value, item), 0, ~Address{0}};
    const auto region_of = [&](std::int64_t row) {
        const std::int64_t length = row_length(call.offsets[row], call.offsets[row + 1], call.width);
        const Run gap = gap_run(row, length, call.width, call.side);
        const Address begin = address_of(call.out) + static_cast<Address>(gap.first * item);
        return Region{begin, begin + static_cast<Address>(gap.length * item), begin, begin, begin};
    };
    write_rows(call.pieces, blockIdx.x, paint, region_of,
               [&](std::int64_t, const Region&, const Piece&) { return Same{0}; });
}

}  // namespace quadrat::cuda
