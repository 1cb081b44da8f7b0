// pad_columns: the ragged columns of a batch to padded outputs, data and padding alike, in one launch. It is copy_rows,
// fill_gaps and attention_mask at once: each element of an output is written once, and a batch costs one launch.
#pragma once

#include "write_rows.cuh"

namespace quadrat::cuda {

__device__ inline void pad_column(const PadColumn& column, std::int64_t block) {
    const int item = static_cast<int>(column.item);
    const std::int64_t token = column.inner * item;  // bytes
    const std::uint64_t fill = repeated(column.fill, item);
    if (column.values == nullptr) {
        const Same value{repeated(column.value, item)};
        const auto region_of = [&](std::int64_t row) {
            const std::int64_t length = row_length(column.offsets[row], column.offsets[row + 1], column.width);
            return padded_region(column.out, row, length, column.width, column.side, token);
        };
        write_rows(column.pieces, block, {item, fill, 0, ~Address{0}}, region_of,
                   [&](std::int64_t, const Region&, const Piece&) { return value; });
        return;
    }
    const Address values = address_of(column.values);
    const auto region_of = [&](std::int64_t row) {
        const Run source = source_run(column.offsets[row], column.offsets[row + 1], column.values_size);
        Region region = padded_region(column.out, row, source.length, column.width, column.side, token);
        region.source = values + static_cast<Address>(source.first * token);
        return region;
    };
    write_rows(column.pieces, block, {item, fill, values, values + static_cast<Address>(column.values_size * token)},
               region_of, [](std::int64_t, const Region&, const Piece& piece) { return Values{piece.from}; });
}

template <int most>
__global__ void QUADRAT_PIECE_BOUNDS pad_columns(const QUADRAT_GRID_CONSTANT SomeColumns<most> call) {
    for_column(call, [&](const PadColumn& column, std::int64_t block) { pad_column(column, block); });
}

}  // namespace quadrat::cuda
