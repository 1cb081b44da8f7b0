// row_keys: 64 bits that tell rows apart by their tokens, for draws that follow a row wherever it goes. A sum over the
// tokens, each mixed with its position: the parts may be added up in any order, by threads of a GPU too.
#pragma once

#include <cstdint>

#include "host_device.hpp"
#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// What a token adds to the key of its row, or, at position -1, the row's length. The steps of SplitMix64 (Steele, Lea
// and Flood, "Fast splittable pseudorandom number generators", 2014).
QUADRAT_HOST_DEVICE inline std::uint64_t key_of_token(std::int64_t token, std::int64_t position) {
    std::uint64_t z =
        static_cast<std::uint64_t>(token) + (static_cast<std::uint64_t>(position) + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

// out[i] is the key of the row of lengths[i] tokens at values[start[i]].
Status row_keys(Span<const std::int64_t> values, Span<const std::int64_t> start, const std::int64_t* lengths,
                std::uint64_t* out);

}  // namespace quadrat
