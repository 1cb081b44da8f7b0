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
// Added to the key before each round but the first.
inline constexpr std::uint32_t philox_weyl0 = 0x9E3779B9, philox_weyl1 = 0xBB67AE85;

QUADRAT_HOST_DEVICE inline void philox_round(std::uint32_t& c0, std::uint32_t& c1, std::uint32_t& c2, std::uint32_t& c3,
                                             std::uint32_t k0, std::uint32_t k1) {
    constexpr std::uint64_t first = 0xD2511F53, second = 0xCD9E8D57;
    const std::uint64_t product0 = first * c0, product2 = second * c2;
    c0 = static_cast<std::uint32_t>(product2 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(product2);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(product0);
}

QUADRAT_HOST_DEVICE inline PhiloxWords philox(const Philox& at) {
    std::uint32_t c0 = at.counter[0], c1 = at.counter[1], c2 = at.counter[2], c3 = at.counter[3];
    std::uint32_t k0 = at.key[0], k1 = at.key[1];
    for (int round = 0; round < philox_rounds; ++round) {
        philox_round(c0, c1, c2, c3, k0, k1);
        k0 += philox_weyl0;
        k1 += philox_weyl1;
    }
    return {{c0, c1, c2, c3}};
}

// Word j of `philox` at `first`, its counter[0] raised by i, is the draw for place i % 8 + 8 * j + i / 8 * 32: eight
// counters serve 32 places in a row. Writes at least the first n <= 128 of these.
inline constexpr int philox_most = 128;
void philox_run(const Philox& first, int n, std::uint32_t* out);

}  // namespace quadrat::rng
