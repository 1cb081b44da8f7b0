#include "philox.hpp"

#include "../simd.hpp"

namespace quadrat::rng {

QUADRAT_CLONES void philox_vector(const Philox& first, std::uint32_t* out) {
    std::uint32_t c0[philox_lanes], c1[philox_lanes], c2[philox_lanes], c3[philox_lanes];
    for (int i = 0; i < philox_lanes; ++i) {
        c0[i] = first.counter[0] + static_cast<std::uint32_t>(i);
        c1[i] = first.counter[1];
        c2[i] = first.counter[2];
        c3[i] = first.counter[3];
    }
    std::uint32_t k0 = first.key[0], k1 = first.key[1];
    for (int round = 0; round < philox_rounds; ++round) {
        for (int i = 0; i < philox_lanes; ++i) {
            const std::uint64_t one = static_cast<std::uint64_t>(philox_multiplier[0]) * c0[i];
            const std::uint64_t two = static_cast<std::uint64_t>(philox_multiplier[1]) * c2[i];
            c0[i] = static_cast<std::uint32_t>(two >> 32) ^ c1[i] ^ k0;
            c1[i] = static_cast<std::uint32_t>(two);
            c2[i] = static_cast<std::uint32_t>(one >> 32) ^ c3[i] ^ k1;
            c3[i] = static_cast<std::uint32_t>(one);
        }
        k0 += philox_weyl[0];
        k1 += philox_weyl[1];
    }
    for (int i = 0; i < philox_lanes; ++i) {
        out[i] = c0[i];
        out[philox_lanes + i] = c1[i];
        out[2 * philox_lanes + i] = c2[i];
        out[3 * philox_lanes + i] = c3[i];
    }
}

}  // namespace quadrat::rng
