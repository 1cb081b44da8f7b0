// flatten_columns: the columns of a flat batch and what tells its rows apart, in one launch: copy_rows to a flat
// output, separate_rows, position_ids, seq_idx and cu_seqlens at once.
#pragma once

#include "write_rows.cuh"

namespace quadrat::cuda {

// The place of a row in a flat output of elements of so many bytes; the last row has what follows it to fill.
__device__ inline Region flat_region(const std::int64_t* offsets, std::int64_t row, std::int64_t rows, const void* out,
                                     std::int64_t out_size, std::int64_t bytes) {
    const Run run = token_run(offsets[row], offsets[row + 1], offsets[0], out_size);
    const Address begin = address_of(out) + static_cast<Address>(run.first * bytes);
    const Address data_end = begin + static_cast<Address>(run.length * bytes);
    const Address end = address_of(out) + static_cast<Address>(out_size * bytes);
    return {begin, row == rows - 1 ? end : data_end, begin, data_end, begin};
}

// The rows of position_ids; those without tokens have none.
__device__ inline Region positions_region(const std::int64_t* offsets, std::int64_t row, std::int64_t rows,
                                          const void* out, std::int64_t out_size) {
    Run run = token_run(offsets[row], offsets[row + 1], offsets[0], out_size);
    if (run.length > 0 && offsets[row + 1] == offsets[rows]) {
        run.length = out_size - run.first;
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

// The rows lie side by side in the values, too: they are one.
__device__ inline void flatten_values(const FlattenColumns& call, const FlatColumn& column, const Paint& plain,
                                      std::int64_t block) {
    const std::int64_t token = column.inner * static_cast<std::int64_t>(column.item);  // bytes
    const Address values = address_of(column.values);
    write_rows(
        column.pieces, block,
        {plain.item, plain.fill, values, values + static_cast<Address>(column.values_size * token)},
        [&](std::int64_t) {
            const Run run = source_run(call.offsets[0], call.offsets[call.rows], column.values_size);
            Region region = padded_region(column.out, 0, run.length, call.out_size, Side::right, token);
            region.source = values + static_cast<Address>(run.first * token);
            return region;
        },
        [](std::int64_t, const Region&, const Piece& piece) { return Values{piece.from}; });
}

__device__ inline void flatten_separated(const FlattenColumns& call, const FlatColumn& column, const Paint& plain,
                                         std::int64_t block) {
    const std::int64_t token = column.inner * static_cast<std::int64_t>(column.item);  // bytes
    const Address values = address_of(column.values);
    write_long_rows(
        column.pieces, block,
        {plain.item, plain.fill, values, values + static_cast<Address>(column.values_size * token)},
        [&](std::int64_t row) {
            Region region = flat_region(call.offsets, row, call.rows, column.out, call.out_size, token);
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
        },
        [](std::int64_t, const Region&, const Piece& piece) { return Values{piece.from}; });
}

__device__ inline void flatten_column(const FlattenColumns& call, const FlatColumn& column, std::int64_t block) {
    const Paint plain{static_cast<int>(column.item), repeated(column.fill, static_cast<int>(column.item)), 0,
                      ~Address{0}};
    if (column.content == FlatContent::positions) {
        write_long_rows(
            column.pieces, block, plain,
            [&](std::int64_t row) { return positions_region(call.offsets, row, call.rows, column.out, call.out_size); },
            [&](std::int64_t, const Region& region, const Piece& piece) {
                return positions_from(static_cast<std::int64_t>(column.value), region, piece);
            });
    } else if (column.content == FlatContent::sequences) {
        write_long_rows(
            column.pieces, block, plain,
            [&](std::int64_t row) { return flat_region(call.offsets, row, call.rows, column.out, call.out_size, 4); },
            [](std::int64_t row, const Region&, const Piece&) {
                return Same{repeated(static_cast<std::uint64_t>(row), 4)};
            });
    } else if (column.content == FlatContent::bounds) {
        const std::int64_t i = thread_number(static_cast<unsigned>(block), blockDim.x, threadIdx.x);
        if (i <= call.rows) {
            const std::uint64_t place =
                static_cast<std::uint64_t>(call.offsets[i]) - static_cast<std::uint64_t>(call.offsets[0]);
            if (column.item == 4) {
                static_cast<std::uint32_t*>(column.out)[i] = static_cast<std::uint32_t>(place);
            } else {
                static_cast<std::uint64_t*>(column.out)[i] = place;
            }
        }
    } else if (column.content == FlatContent::values) {
        flatten_values(call, column, plain, block);
    } else {
        flatten_separated(call, column, plain, block);
    }
}

__global__ void QUADRAT_PIECE_BOUNDS flatten_columns(const QUADRAT_GRID_CONSTANT FlattenColumns call) {
    for_column(call, [&](const FlatColumn& column, std::int64_t block) { flatten_column(call, column, block); });
}

}  // namespace quadrat::cuda
