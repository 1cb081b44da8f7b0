// Where the rows of a flat batch lie in its outputs: what its kernels have in common.
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

}  // namespace quadrat::cuda
