// philox_mask: masks the tokens of each row, as the CPU does. A thread draws four words, see pad_masked.
#pragma once

#include "mask_token.cuh"

namespace quadrat::cuda {

__global__ void philox_mask(PhiloxMask call) {
    const Share rows = share_of_rows();
    const Share blocks = share_of_elements();
    for (std::int64_t row = rows.first; row < call.rows; row += rows.step) {
        const std::int64_t begin = call.offsets[row], end = call.offsets[row + 1];
        const std::int64_t length = row_length(begin, end, call.width);
        const Run run = call.flat ? token_run(begin, end, call.offsets[0], call.out_size)
                                  : padded_run(row, length, call.width, call.side);
        const std::uint64_t key = call.row_keys[row];
        for (std::int64_t block = blocks.first; first_position(block) < run.length; block += blocks.step) {
            const rng::PhiloxWords drawn =
                rng::philox(philox_counter(call.how, key, static_cast<std::uint32_t>(block)));
            for (int j = 0; j < 4; ++j) {
                const std::int64_t position = first_position(block) + std::int64_t{8} * j;
                if (position < run.length) {
                    mask_token(call, key, run.first, position, draw_of_word(drawn.word[j]));
                }
            }
        }
        if (!call.flat) {
            ignore_labels(call, gap_run(row, length, call.width, call.side), blocks);
        } else if (row == call.rows - 1) {
            const std::int64_t filled = run.first + run.length;
            ignore_labels(call, {filled, call.out_size - filled}, blocks);
        }
    }
}

}  // namespace quadrat::cuda
