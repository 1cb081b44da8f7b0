// A set of small numbers that finds the next one in a few steps, however far it is.
#pragma once

#include <algorithm>
#include <cstdint>

#include "types.hpp"

namespace quadrat {

// The place of the lowest bit that is set; one is.
inline std::int64_t lowest_bit(std::uint64_t word) {
#if defined(__GNUC__)
    return __builtin_ctzll(word);
#else
    std::int64_t at = 0;
    for (int half = 32; half > 0; half /= 2) {
        if ((word << (64 - half)) == 0) {
            word >>= half;
            at += half;
        }
    }
    return at;
#endif
}

// A set of the numbers 0 ... size - 1: a bit each, and above each word of bits a bit that says whether it has one.
class BitTree {
public:
    static constexpr std::int64_t none = -1;

    static std::int64_t words(std::int64_t size) {
        std::int64_t total = 0;
        do {
            size = words_for(size);
            total += size;
        } while (size > 1);
        return total;
    }

    BitTree(std::int64_t size, std::uint64_t* memory) {
        std::fill(memory, memory + words(size), 0);
        do {
            size = words_for(size);
            levels_[count_++] = {memory, size};
            memory += size;
        } while (size > 1);
    }

    void insert(std::int64_t number) {
        for (int level = 0; level < count_; ++level) {
            std::uint64_t& word = levels_[level][number / word_bits];
            const bool known_above = word != 0;
            word |= std::uint64_t{1} << (number % word_bits);
            if (known_above) {
                return;
            }
            number /= word_bits;
        }
    }

    void remove(std::int64_t number) {
        for (int level = 0; level < count_; ++level) {
            std::uint64_t& word = levels_[level][number / word_bits];
            word &= ~(std::uint64_t{1} << (number % word_bits));
            if (word != 0) {
                return;
            }
            number /= word_bits;
        }
    }

    bool has(std::int64_t number) const { return (levels_[0][number / word_bits] >> (number % word_bits) & 1) != 0; }

    // The least number of the set that is not below this one, or `none`.
    std::int64_t at_least(std::int64_t number) const {
        for (int level = 0; level < count_; ++level) {
            if (number / word_bits >= levels_[level].size) {
                return none;
            }
            const std::uint64_t bits = levels_[level][number / word_bits] >> (number % word_bits);
            if (bits != 0) {
                return lowest_below(level, number + lowest_bit(bits));
            }
            number = number / word_bits + 1;
        }
        return none;
    }

private:
    static constexpr std::int64_t word_bits = 64;
    static constexpr int most_levels = 11;  // 64^11 is above all numbers
    Span<std::uint64_t> levels_[most_levels];
    int count_ = 0;

    static std::int64_t words_for(std::int64_t bits) { return (bits + word_bits - 1) / word_bits; }

    std::int64_t lowest_below(int level, std::int64_t number) const {
        while (level > 0) {
            number = number * word_bits + lowest_bit(levels_[--level][number]);
        }
        return number;
    }
};

}  // namespace quadrat
