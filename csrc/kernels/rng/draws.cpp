#include "draws.hpp"

#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

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

constexpr std::uint32_t mantissa = 0xFFFFFF;

// A trial compares low 24 bits * 2^-24 < p in float32; both sides are exact, so a comparison of integers will do.
std::uint32_t threshold(double p) {
    return static_cast<std::uint32_t>(std::ceil(std::ldexp(static_cast<float>(p), 24)));
}

QUADRAT_CLONES void compare(const std::uint32_t* words, const std::uint8_t* eligible, int n, std::uint32_t limit,
                            std::uint8_t* hit) {
    for (int i = 0; i < n; ++i) {
        const bool success = (Mt19937::temper(words[i]) & mantissa) < limit;
        hit[i] = static_cast<std::uint8_t>(static_cast<unsigned>(success) & static_cast<unsigned>(eligible[i] == 1));
    }
}

bool trial_of_float64(Mt19937& engine, double p) {
    const std::uint64_t high = engine.next() & 0x1FFFFF, low = engine.next();
    return std::ldexp(static_cast<double>(high << 32 | low), -53) < p;
}

// Passes `count` words on: visit(at, word) for the one at positions[at], tempered.
template <typename Visit>
void for_words_at(Mt19937& engine, std::int64_t count, Span<const std::int64_t> positions, Visit visit) {
    std::int64_t at = 0;
    engine.for_words(count, [&](std::int64_t first, const std::uint32_t* words, int n) {
        for (; at < positions.size && positions[at] < first + n; ++at) {
            visit(at, Mt19937::temper(words[positions[at] - first]));
        }
    });
}

// An integer of 0 ... most, of so many bits.
std::int64_t python_integer(Mt19937& engine, int bits, std::int64_t most) {
    std::int64_t value = engine.next() >> (32 - bits);
    while (value > most) {
        value = engine.next() >> (32 - bits);
    }
    return value;
}

}  // namespace

void Mt19937::twist() {
    std::uint32_t old[size];
    std::memcpy(old, state, sizeof old);
    twist_into(old, state);
    used = 0;
}

std::int64_t TorchDraws::trials(double p, const std::uint8_t* eligible, std::int64_t count, std::int64_t* positions) {
    std::int64_t successes = 0;
    if (float64_) {
        for (std::int64_t i = 0; i < count; ++i) {
            positions[successes] = i;
            successes += trial_of_float64(engine_, p) && eligible[i] == 1 ? 1 : 0;
        }
        return successes;
    }
    engine_.for_words(count, [&, limit = threshold(p)](std::int64_t first, const std::uint32_t* words, int n) {
        std::uint8_t hit[Mt19937::size];
        compare(words, eligible + first, n, limit, hit);
        std::int64_t at = successes;  // in a register, not written back for each token
        for (int i = 0; i < n; ++i) {
            positions[at] = first + i;  // at most the token's own number: there is room
            at += hit[i];
        }
        successes = at;
    });
    return successes;
}

void TorchDraws::trials_at(double p, std::int64_t count, Span<const std::int64_t> positions, std::uint8_t* hit) {
    if (float64_) {
        for (std::int64_t i = 0, at = 0; i < count; ++i) {
            const bool success = trial_of_float64(engine_, p);
            if (at < positions.size && positions[at] == i) {
                hit[at++] = success ? 1 : 0;
            }
        }
        return;
    }
    for_words_at(engine_, count, positions, [hit, limit = threshold(p)](std::int64_t at, std::uint32_t word) {
        hit[at] = (word & mantissa) < limit ? 1 : 0;
    });
}

void TorchDraws::integers_at(std::int64_t high, std::int64_t count, Span<const std::int64_t> positions,
                             std::int64_t* out) {
    for_words_at(engine_, count, positions,
                 [&, divisor = static_cast<std::uint32_t>(high)](std::int64_t at, std::uint32_t word) {
                     out[positions[at]] = word % divisor;
                 });
}

std::int64_t TorchDraws::below(std::int64_t n) { return engine_.next() % static_cast<std::uint32_t>(n); }

void TorchDraws::permutation(std::int64_t n, std::int64_t* out) {
    std::iota(out, out + n, std::int64_t{0});
    for (std::int64_t i = 0; i + 1 < n; ++i) {
        std::swap(out[i], out[i + below(n - i)]);
    }
}

std::int64_t PythonDraws::below(std::int64_t n) {
    int bits = 1;  // n > 0
    while (bits < 32 && (n >> bits) != 0) {
        ++bits;
    }
    return python_integer(engine_, bits, n - 1);
}

void PythonDraws::permutation(std::int64_t n, std::int64_t* out) {
    int bits = 1;  // of i + 1, which falls: counted once
    for (std::int64_t i = 0; i < n; ++i) {
        out[i] = i;
        bits += (n >> bits) != 0 ? 1 : 0;
    }
    for (std::int64_t i = n - 1; i > 0; --i) {
        bits -= (i + 1) >> (bits - 1) == 0 ? 1 : 0;
        std::swap(out[i], out[python_integer(engine_, bits, i)]);
    }
}

}  // namespace quadrat::rng
