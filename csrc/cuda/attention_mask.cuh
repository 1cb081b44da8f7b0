// attention_mask: ones where a padded batch has tokens, zeros where it has padding. Every element is written.
#pragma once

#include "write_rows.cuh"

namespace quadrat::cuda {

__global__ void QUADRAT_PIECE_BOUNDS attention_mask(AttentionMask call) {
    const int item = static_cast<int>(call.item);
    const Same one{repeated(call.one, item)};
    const Paint paint{item, 0, 0, ~Address{0}};
    const auto region_of = [&](std::int64_t row) {
        const std::int64_t length = row_length(call.offsets[row], call.offsets[row + 1], call.width);
        return padded_region(call.out, row, length, call.width, call.side, item);
    };
    write_rows(call.pieces, blockIdx.x, paint, region_of,
               [&](std::int64_t, const Region&, const Piece&) { return one; });
}

}  // namespace quadrat::cuda
