// unpad: the rows of a padded batch to their places in flat values. Zeros where no row goes: before the first, after
// the last, and in what is longer than the batch is wide. That makes it the derivative of padding.
#pragma once

#include "write_rows.cuh"

namespace quadrat::cuda {

__global__ void QUADRAT_PIECE_BOUNDS unpad(Unpad call) {
    const int item = static_cast<int>(call.item);
    const std::int64_t token = call.inner * item;  // bytes
    const Address padded = address_of(call.padded);
    const Paint paint{item, 0, padded, padded + static_cast<Address>(call.rows * call.width * token)};
    const auto place = [&](std::int64_t at) { return address_of(call.out) + static_cast<Address>(at * token); };
    const std::int64_t cleaning = static_cast<std::int64_t>(blockIdx.x) - call.pieces.blocks;
    if (cleaning >= 0) {
        const std::int64_t thread = cleaning * blockDim.x + threadIdx.x;
        const std::int64_t threads = unpad_cleaning_blocks * std::int64_t{blockDim.x};
        const std::int64_t first = clamp(call.offsets[0], 0, call.out_size);
        const std::int64_t last = clamp(call.offsets[call.rows], first, call.out_size);
        write_zeros(place(0), place(first), thread, threads);
        write_zeros(place(last), place(call.out_size), thread, threads);
        return;
    }
    const Turn turn = turn_of(call.pieces, blockIdx.x);
    if (turn.row >= call.rows) {
        return;
    }
    const Run run = source_run(call.offsets[turn.row], call.offsets[turn.row + 1], call.out_size);
    const Run source = padded_run(turn.row, run.length, call.width, call.side);
    const Address begin = place(run.first), end = place(run.first + source.length);
    if (turn.at == 0 && source.length < run.length) {
        write_zeros(end, place(run.first + run.length), turn.lanes.lane, turn.lanes.count);
    }
    const Region region{begin, end, begin, end, padded + static_cast<Address>(source.first * token)};
    if (turn.at < span_of(region)) {
        const Piece piece = piece_of(region, turn.at, 1 << call.pieces.bytes_log);
        write_piece(piece, Values{piece.from}, paint, turn.lanes);
    }
}

}  // namespace quadrat::cuda
