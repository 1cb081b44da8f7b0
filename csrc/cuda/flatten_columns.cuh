// flatten_columns: the columns of a flat batch and what tells its rows apart, in one launch: copy_rows to a flat
// output, separate_rows, position_ids, seq_idx and cu_seqlens at once.
#pragma once

#include "write_rows.cuh"

namespace quadrat::cuda {

// The place of a row in a flat output of elements of so many bytes; the last row has what follows it to fill.
__device__ inline Region flat_region(const FlattenColumns& call, std::int64_t row, const void* out,
                                     std::int64_t bytes) {
    const Run run = token_run(call.offsets[row], call.offsets[row + 1], call.offsets[0], call.out_size);
    const Address begin = address_of(out) + static_cast<Address>(run.first * bytes);
    const Address data_end = begin + static_cast<Address>(run.length * bytes);
    const Address end = address_of(out) + static_cast<Address>(call.out_size * bytes);
    return {begin, row == call.rows - 1 ? end : data_end, begin, data_end, begin};
}

// The rows of position_ids; those without tokens have none.
__device__ inline Region positions_region(const FlattenColumns& call, std::int64_t row, const void* out) {
    Run run = token_run(call.offsets[row], call.offsets[row + 1], call.offsets[0], call.out_size);
    if (run.length > 0 && call.offsets[row + 1] == call.offsets[call.rows]) {
        run.length = call.out_size - run.first;
    }
    const Address begin = address_of(out) + static_cast<Address>(run.first * 8);
    const Address end = begin + static_cast<Address>(run.length * 8);
    return {begin, end, begin, end, begin};
}

// What stands at the beginning of a piece. Unsigned: a start near the end of the numbers wraps.
__device__ inline Counting positions_from(std::int64_t start, const Region& region, const Piece& piece) {
    // The piece may begin before its row, in the middle of a word, but by whole positions.
    const std::int64_t before = static_cast<std::int64_t>(piece.to - region.data_begin) / 8;
    return {static_cast<std::uint64_t>(start) + static_cast<std::uint64_t>(before)};
}

__device__ inline void flatten_column(const FlattenColumns& call, const FlatColumn& column, std::int64_t block) {
    const int item = static_cast<int>(column.item);
    const std::int64_t token = column.inner * item;  // bytes
    const Address values = address_of(column.values);
    const Paint plain{item, repeated(column.fill, item), 0, ~Address{0}};
    const Paint copied{item, plain.fill, values, values + static_cast<Address>(column.values_size * token)};
    const auto values_of = [](std::int64_t, const Region&, const Piece& piece) { return Values{piece.from}; };
    if (column.content == FlatContent::positions) {
        write_rows<true>(
            column.pieces, block, plain, [&](std::int64_t row) { return positions_region(call, row, column.out); },
            [&](std::int64_t, const Region& region, const Piece& piece) {
                return positions_from(static_cast<std::int64_t>(column.value), region, piece);
            });
    } else if (column.content == FlatContent::sequences) {
        write_rows<true>(
            column.pieces, block, plain, [&](std::int64_t row) { return flat_region(call, row, column.out, 4); },
            [](std::int64_t row, const Region&, const Piece&) {
                return Same{repeated(static_cast<std::uint64_t>(row), 4)};
            });
    } else if (column.content == FlatContent::bounds) {
        const std::int64_t i = thread_number(static_cast<unsigned>(block), blockDim.x, threadIdx.x);
        if (i <= call.rows) {
            const std::uint64_t place =
                static_cast<std::uint64_t>(call.offsets[i]) - static_cast<std::uint64_t>(call.offsets[0]);
            static_cast<std::uint32_t*>(column.out)[i] = static_cast<std::uint32_t>(place);
        }
    } else if (column.content == FlatContent::values) {
        // The rows lie side by side in the values, too: they are one.
        const auto region_of = [&](std::int64_t) {
            const Run run = source_run(call.offsets[0], call.offsets[call.rows], column.values_size);
            Region region = padded_region(column.out, 0, run.length, call.out_size, Side::right, token);
            region.source = values + static_cast<Address>(run.first * token);
            return region;
        };
        write_rows(column.pieces, block, copied, region_of, values_of);
    } else {
        const auto region_of = [&](std::int64_t row) {
            Region region = flat_region(call, row, column.out, token);
            const Run source = source_run(call.offsets[row], call.offsets[row + 1], column.values_size);
            region.source = values + static_cast<Address>(source.first * token);
            // Hostile offsets may have more tokens than there are values.
            const Address most = region.data_begin + static_cast<Address>(source.length * token);
            region.data_end = region.data_end < most ? region.data_end : most;
            if (region.data_begin < region.data_end) {
                region.data_begin += static_cast<Address>(token);
                region.source += static_cast<Address>(token);
            }
            return region;
        };
        write_rows<true>(column.pieces, block, copied, region_of, values_of);
    }
}

__global__ void QUADRAT_PIECE_BOUNDS flatten_columns(const QUADRAT_GRID_CONSTANT FlattenColumns call) {
    for_column(call, [&](const FlatColumn& column, std::int64_t block) { flatten_column(call, column, block); });
}

}  // namespace quadrat::cuda
