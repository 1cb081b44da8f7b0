#include "mt19937.hpp"

#include <cstring>

#include "../simd.hpp"

namespace quadrat::rng {
namespace {

constexpr int size = Mt19937::size;
constexpr int shift = 397;

inline std::uint32_t mix(std::uint32_t high, std::uint32_t low) {
    const std::uint32_t word = (high & 0x80000000U) | (low & 0x7FFFFFFFU);
    return (word >> 1) ^ ((0U - (low & 1U)) & 0x9908B0DFU);
}

// From one buffer into another, in three runs none of which reads what it writes, so that each vectorises.
QUADRAT_CLONES void twist_into(const std::uint32_t* __restrict old, std::uint32_t* __restrict fresh) {
    for (int i = 0; i < size - shift; ++i) {
        fresh[i] = old[i + shift] ^ mix(old[i], old[i + 1]);
    }
    QUADRAT_INDEPENDENT
    for (int i = size - shift; i < 2 * (size - shift); ++i) {
        fresh[i] = fresh[i - (size - shift)] ^ mix(old[i], old[i + 1]);
    }
    QUADRAT_INDEPENDENT
    for (int i = 2 * (size - shift); i < size - 1; ++i) {
        fresh[i] = fresh[i - (size - shift)] ^ mix(old[i], old[i + 1]);
    }
    fresh[size - 1] = fresh[shift - 1] ^ mix(old[size - 1], fresh[0]);
}

}  // namespace

void Mt19937::twist() {
    std::uint32_t old[size];
    std::memcpy(old, state, sizeof old);
    twist_into(old, state);
    used = 0;
}

}  // namespace quadrat::rng
