// pad_masked: copy_rows, fill_gaps, attention_mask and philox_mask in one launch: ids are read once. A thread draws
// four words for positions eight apart, so that a warp reads and writes runs of eight tokens.
#pragma once

#include "philox_mask.cuh"
#include "piece.hpp"

namespace quadrat::cuda {

__global__ void pad_masked(PadMasked call) {
    const Share rows = share_of_rows();
    const Share blocks = share_of_elements();
    for (std::int64_t row = rows.first; row < call.rows; row += rows.step) {
        const Run source = source_run(call.offsets[row], call.offsets[row + 1], call.values_size);
        const Run run = padded_run(row, source.length, call.width, call.side);
        const std::uint64_t key = call.row_keys[row];
        for (std::int64_t block = blocks.first; first_position(block) < run.length; block += blocks.step) {
            const std::int64_t first = first_position(block);
            std::int64_t ids[4] = {};
            QUADRAT_UNROLL
            for (int j = 0; j < 4; ++j) {
                if (first + std::int64_t{8} * j < run.length) {
                    ids[j] = load_constant<std::int64_t>(
                        address_of(call.values + source.first + first + std::int64_t{8} * j));
                }
            }
            const rng::PhiloxWords drawn =
                rng::philox(philox_counter(call.how, key, static_cast<std::uint32_t>(block)));
            QUADRAT_UNROLL
            for (int j = 0; j < 4; ++j) {
                const std::int64_t position = first + std::int64_t{8} * j;
                if (position < run.length) {
                    const std::uint32_t draw = draw_of_word(drawn.word[j]);
                    const MaskBars& bars = call.how.begins;
                    const bool masked =
                        draw < bars.masked && word_of_id(call.set, call.set_size, ids[j]) == word_begins;
                    const std::int64_t at = run.first + position;
                    call.labels[at] = masked ? ids[j] : std::int64_t{ignore_index};
                    call.ids[at] = masked ? masked_id(call.how, bars, draw, key, position, ids[j]) : ids[j];
                    if (call.mask != nullptr) {
                        call.mask[at] = 1;
                    }
                }
            }
        }
        const Run gap = gap_run(row, source.length, call.width, call.side);
        for (std::int64_t k = blocks.first; k < gap.length; k += blocks.step) {
            call.ids[gap.first + k] = call.fill;
            call.labels[gap.first + k] = ignore_index;
            if (call.mask != nullptr) {
                call.mask[gap.first + k] = 0;
            }
        }
    }
}

}  // namespace quadrat::cuda
