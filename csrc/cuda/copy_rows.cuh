// copy_rows: row i of a ragged column to its start in a flat output. What does not fit is cut, where the CPU's kernel
// reports it: a report would cost a synchronisation.
#pragma once

#include "write_rows.cuh"

namespace quadrat::cuda {

__global__ void QUADRAT_PIECE_BOUNDS copy_rows(CopyRows call) {
    const int item = static_cast<int>(call.item);
    const Address values = address_of(call.values);
    const Paint paint{item, 0, values, values + static_cast<Address>(call.values_size * item)};
    const auto region_of = [&](std::int64_t row) {
        const Run source = source_run(call.offsets[row], call.offsets[row + 1], call.values_size);
        const Run target = flat_run(call.start[row], source.length, call.out_size);
        const Address begin = address_of(call.out) + static_cast<Address>(target.first * item);
        const Address end = begin + static_cast<Address>(target.length * item);
        return Region{begin, end, begin, end, values + static_cast<Address>(source.first * item)};
    };
    write_long_rows(call.pieces, blockIdx.x, paint, region_of,
                    [](std::int64_t, const Region&, const Piece& piece) { return Values{piece.from}; });
}

}  // namespace quadrat::cuda
