// word_starts: where words begin among the tokens of each row, from offsets or from word ids. A token looks at the one
// before it, so that none waits for another.
#pragma once

#include "../kernels/mask_tokens.hpp"
#include "kernel.cuh"

namespace quadrat::cuda {

__global__ void word_starts(WordStarts call) {
    const Share rows = share_of_rows();
    const Share tokens = share_of_elements();
    for (std::int64_t row = rows.first; row < call.rows; row += rows.step) {
        for (std::int64_t k = tokens.first; k < call.width; k += tokens.step) {
            const std::int64_t i = row * call.width + k;
            const std::int64_t end_before = k == 0 ? -1 : call.offsets[2 * i - 1];
            const bool begins = call.offsets[2 * i] != end_before || (k > 0 && call.special[i - 1] == 1);
            call.words[i] = call.special[i] != 0 ? word_none : begins ? word_begins : word_inside;
        }
    }
}

__global__ void word_starts_of_ids(WordStartsOfIds call) {
    const Share rows = share_of_rows();
    const Share tokens = share_of_elements();
    for (std::int64_t row = rows.first; row < call.rows; row += rows.step) {
        for (std::int64_t k = tokens.first; k < call.width; k += tokens.step) {
            const std::int64_t i = row * call.width + k;
            const bool begins = k == 0 || call.word_ids[i] != call.word_ids[i - 1] || call.special[i - 1] != 0;
            const bool none = call.special[i] != 0 || call.word_ids[i] < 0;
            call.words[i] = none ? word_none : begins ? word_begins : word_inside;
        }
    }
}

}  // namespace quadrat::cuda
