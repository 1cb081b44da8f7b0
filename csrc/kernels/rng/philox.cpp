#include "philox.hpp"

#include "../simd.hpp"

// Short loops are not to be unrolled before they are vectorised.
#if defined(__GNUC__) && !defined(__clang__)
#define QUADRAT_KEEP_LOOP _Pragma("GCC unroll 1")
#else
#define QUADRAT_KEEP_LOOP
#endif

namespace quadrat::rng {
namespace {

// Inline in its clones.
template <int lanes>
[[gnu::always_inline]] inline void draw(const Philox& first, std::uint32_t* out) {
    std::uint32_t c0[lanes], c1[lanes], c2[lanes], c3[lanes];
    for (int i = 0; i < lanes; ++i) {
        c0[i] = first.counter[0] + static_cast<std::uint32_t>(i);
        c1[i] = first.counter[1];
        c2[i] = first.counter[2];
        c3[i] = first.counter[3];
    }
    std::uint32_t k0 = first.key[0], k1 = first.key[1];
    for (int round = 0; round < philox_rounds; ++round) {
        QUADRAT_KEEP_LOOP
        for (int i = 0; i < lanes; ++i) {
            philox_round(c0[i], c1[i], c2[i], c3[i], k0, k1);
        }
        k0 += philox_weyl0;
        k1 += philox_weyl1;
    }
    for (int group = 0; group < lanes; group += 8) {
        for (int i = 0; i < 8; ++i) {
            out[4 * group + i] = c0[group + i];
            out[4 * group + 8 + i] = c1[group + i];
            out[4 * group + 16 + i] = c2[group + i];
            out[4 * group + 24 + i] = c3[group + i];
        }
    }
}

QUADRAT_CLONES void draw_many(const Philox& first, std::uint32_t* out) { draw<32>(first, out); }
QUADRAT_CLONES void draw_few(const Philox& first, std::uint32_t* out) { draw<8>(first, out); }

}  // namespace

void philox_run(const Philox& first, int n, std::uint32_t* out) {
    if (n > 64) {  // what 32 lanes cost
        draw_many(first, out);
        return;
    }
    Philox at = first;
    for (int i = 0; i < n; i += 32) {
        draw_few(at, out + i);
        at.counter[0] += 8;
    }
}

}  // namespace quadrat::rng
