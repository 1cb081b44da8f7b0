// philox_mask: masks the tokens of each row, as the CPU does, or first pads them: copy_rows, fill_gaps, attention_mask
// and philox_mask in one launch, so that ids are read once. Each token is a word of its own. A thread draws four words
// for positions eight apart, so that a warp reads and writes runs of eight tokens.
#pragma once

#include "kernel.cuh"
#include "piece.hpp"

namespace quadrat::cuda {

__device__ inline bool is_special(const std::uint64_t* set, std::int64_t set_size, std::int64_t id) {
    const auto at = static_cast<std::uint64_t>(id);  // negative ones are past any set
    return at / 64 < static_cast<std::uint64_t>(set_size) && (set[at / 64] >> (at % 64) & 1U) != 0;
}

// Token `position` of the row that begins at `first`, and its id; draw: its own.
template <bool pads>
__device__ inline void mask_token(const PhiloxMask& call, std::uint64_t key, std::int64_t first, std::int64_t position,
                                  std::uint32_t draw, std::int64_t id) {
    const std::int64_t at = first + position;
    const bool by_set = pads || call.words == nullptr;
    const bool may_be = by_set ? !is_special(call.set, call.set_size, id) : call.words[at] == word_begins;
    const bool masked = may_be && draw < call.how.begins.masked;
    call.labels[at] = masked ? id : std::int64_t{ignore_index};
    if (masked || pads) {
        call.ids[at] = masked ? masked_id(call.how, call.how.begins, draw, key, position, id) : id;
    }
    if (pads && call.attention_mask != nullptr) {
        call.attention_mask[at] = 1;
    }
}

// What is in no row.
template <bool pads>
__device__ inline void write_gap(const PhiloxMask& call, const Run& gap, const Share& elements) {
    for (std::int64_t k = elements.first; k < gap.length; k += elements.step) {
        call.labels[gap.first + k] = ignore_index;
        if (pads) {
            call.ids[gap.first + k] = call.fill;
        }
        if (pads && call.attention_mask != nullptr) {
            call.attention_mask[gap.first + k] = 0;
        }
    }
}

template <bool pads>
__global__ void philox_mask(PhiloxMask call) {
    const Share rows = share_of_rows();
    const Share blocks = share_of_elements();
    for (std::int64_t row = rows.first; row < call.rows; row += rows.step) {
        const std::int64_t begin = call.offsets[row], end = call.offsets[row + 1];
        const Run source = source_run(begin, end, call.values_size);
        const std::int64_t length = pads ? source.length : row_length(begin, end, call.width);
        const Run run = !pads && call.flat ? token_run(begin, end, call.offsets[0], call.out_size)
                                           : padded_run(row, length, call.width, call.side);
        const std::int64_t* const from = pads ? call.values + source.first : call.ids + run.first;
        const std::uint64_t key = call.row_keys[row];
        for (std::int64_t block = blocks.first; first_position(block) < run.length; block += blocks.step) {
            const std::int64_t first = first_position(block);
            std::int64_t ids[4] = {};
            QUADRAT_UNROLL
            for (int j = 0; j < 4; ++j) {
                if (first + std::int64_t{8} * j < run.length) {
                    const std::int64_t* const id = from + first + std::int64_t{8} * j;
                    ids[j] = pads ? load_constant<std::int64_t>(address_of(id)) : *id;
                }
            }
            const rng::PhiloxWords drawn =
                rng::philox(philox_counter(call.how, key, static_cast<std::uint32_t>(block)));
            QUADRAT_UNROLL
            for (int j = 0; j < 4; ++j) {
                const std::int64_t position = first + std::int64_t{8} * j;
                if (position < run.length) {
                    mask_token<pads>(call, key, run.first, position, draw_of_word(drawn.word[j]), ids[j]);
                }
            }
        }
        if (pads || !call.flat) {
            write_gap<pads>(call, gap_run(row, length, call.width, call.side), blocks);
        } else if (row == call.rows - 1) {
            const std::int64_t filled = run.first + run.length;
            write_gap<pads>(call, {filled, call.out_size - filled}, blocks);
        }
    }
}

}  // namespace quadrat::cuda
