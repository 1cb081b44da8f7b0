// MT19937 (Matsumoto and Nishimura, 1998), the engine under torch's CPU generator and Python's `random`. The words are
// made 624 at a time: most draws of a masked batch only have to be stepped over, which costs no tempering.
#pragma once

#include <algorithm>
#include <cstdint>

namespace quadrat::rng {

struct Mt19937 {
    static constexpr int size = 624;

    std::uint32_t state[size];
    int used = size;  // words of `state` given out so far; at `size` the next word needs a new state

    // A new state in place of the old one.
    void twist();

    // The word at `state[i]` as it is given out.
    static constexpr std::uint32_t temper(std::uint32_t word) {
        word ^= word >> 11;
        word ^= (word << 7) & 0x9D2C5680U;
        word ^= (word << 15) & 0xEFC60000U;
        return word ^ (word >> 18);
    }

    std::uint32_t next() {
        if (used == size) {
            twist();
        }
        return temper(state[used++]);
    }

    // Passes `count` words on, untempered: visit(first, words, n) for words first ... first + n - 1 of them.
    template <typename Visit>
    void for_words(std::int64_t count, Visit visit) {
        for (std::int64_t first = 0; first < count;) {
            if (used == size) {
                twist();
            }
            const auto n = static_cast<int>(std::min<std::int64_t>(count - first, size - used));
            visit(first, state + used, n);
            used += n;
            first += n;
        }
    }
};

}  // namespace quadrat::rng
