// special_tokens: which ids are special, by a bit per id. The set is small and read by all threads: it stays in the
// cache.
#pragma once

#include "kernel.cuh"

namespace quadrat::cuda {

__global__ void special_tokens(SpecialTokens call) {
    const Share tokens = share_of_one_row();
    for (std::int64_t i = tokens.first; i < call.count; i += tokens.step) {
        const auto id = static_cast<std::uint64_t>(call.ids[i]);  // negative ones are past any set
        const bool inside = id / 64 < static_cast<std::uint64_t>(call.set_size);
        call.out[i] = inside ? static_cast<std::uint8_t>(call.set[id / 64] >> (id % 64) & 1U) : std::uint8_t{0};
    }
}

}  // namespace quadrat::cuda
