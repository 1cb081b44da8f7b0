// attention_mask: ones where a padded batch has tokens, zeros where it has padding. Every element is written.
#pragma once

#include "kernel.cuh"

namespace quadrat::cuda {

template <typename T>
__global__ void attention_mask(AttentionMask call) {
    T* const __restrict__ out = static_cast<T*>(call.out);
    const T one = static_cast<T>(call.one);
    const Share rows = share_of_rows();
    const Share elements = share_of_elements();
    for (std::int64_t row = rows.first; row < call.rows; row += rows.step) {
        const std::int64_t length = row_length(call.offsets[row], call.offsets[row + 1], call.width);
        const std::int64_t first = row * call.width;
        const std::int64_t begin = padded_run(row, length, call.width, call.side).first - first;
        for (std::int64_t k = elements.first; k < call.width; k += elements.step) {
            out[first + k] = k >= begin && k - begin < length ? one : T{0};
        }
    }
}

}  // namespace quadrat::cuda
