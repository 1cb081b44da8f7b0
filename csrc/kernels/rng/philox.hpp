// Philox4x32-10: a counter and a key give four random words, and no state is kept (Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", 2011). What is drawn for a token is a function of where it stands.
#pragma once

#include <cstdint>

#include "../simd.hpp"

namespace quadrat::rng {

struct Philox {
    std::uint32_t counter[4];
    std::uint32_t key[2];
};

struct PhiloxWords {
    std::uint32_t word[4];
};

inline constexpr int philox_rounds = 10;
inline constexpr std::uint32_t philox_multiplier[2] = {0xD2511F53, 0xCD9E8D57};
inline constexpr std::uint32_t philox_weyl[2] = {0x9E3779B9, 0xBB67AE85};

QUADRAT_HOST_DEVICE inline PhiloxWords philox(const Philox& at) {
    constexpr std::uint64_t first = philox_multiplier[0], second = philox_multiplier[1];
    constexpr std::uint32_t step0 = philox_weyl[0], step1 = philox_weyl[1];
    std::uint32_t c0 = at.counter[0], c1 = at.counter[1], c2 = at.counter[2], c3 = at.counter[3];
    std::uint32_t k0 = at.key[0], k1 = at.key[1];
    for (int round = 0; round < philox_rounds; ++round) {
        const std::uint64_t one = first * c0, two = second * c2;
        c0 = static_cast<std::uint32_t>(two >> 32) ^ c1 ^ k0;
        c1 = static_cast<std::uint32_t>(two);
        c2 = static_cast<std::uint32_t>(one >> 32) ^ c3 ^ k1;
        c3 = static_cast<std::uint32_t>(one);
        k0 += step0;
        k1 += step1;
    }
    return {{c0, c1, c2, c3}};
}

// Word j of `philox` at `first`, its counter[0] raised by i, is the draw for place i % 8 + 8 * j + i / 8 * 32: eight
// counters serve 32 places in a row. Writes at least the first n <= 128 of these.
inline constexpr int philox_most = 128;
void philox_run(const Philox& first, int n, std::uint32_t* out);

}  // namespace quadrat::rng
