// philox_mask: masked language modelling by numbers that depend on (seed, epoch, row key, position) alone: not on the
// other rows, padding, processes or the device. The CPU and the GPU share this source, and compare integers only.
#pragma once

#include "mask_tokens.hpp"
#include "rng/philox.hpp"
#include "simd.hpp"

namespace quadrat {

// A draw has 31 bits: `certain` lies above all of them and still fits a word.
inline constexpr std::uint32_t certain = 0x80000000;
// Positions must be below, so that the draws for random tokens have counters of their own.
inline constexpr std::int64_t most_positions = 0x80000000;

// What happens to a token whose draw is below each: it is masked; it becomes a random token; it becomes the mask token.
struct MaskBars {
    std::uint32_t masked;
    std::uint32_t randomised;  // no higher than `masked`
    std::uint32_t replaced;    // no higher than `randomised`
};

struct PhiloxMasking {
    std::uint64_t seed;
    std::uint32_t epoch;
    MaskBars begins;  // for a token that begins a word: its draw says whether the word is masked, too
    MaskBars inside;  // for another token of a masked word
    std::int64_t mask_id;
    std::int64_t vocab_size;  // random tokens are drawn below this; 0 < vocab_size < most_tokens
};

// Bars for a token that is masked with probability p and then replaced or randomised with the other two.
inline MaskBars mask_bars(double p, double replaced, double randomised) {
    const auto bar = [](double probability, std::uint32_t most) {
        const auto rounded = static_cast<std::uint32_t>(probability * certain + 0.5);
        return rounded < most ? rounded : most;
    };
    const std::uint32_t masked = bar(p, certain);
    const std::uint32_t both = bar(p * (replaced + randomised), masked);
    return {masked, both, bar(p * replaced, both)};
}

// Which word of which counter a position draws: a counter serves four positions eight apart. Eight lanes of a vector,
// or of a warp, then draw for 32 tokens and read and write runs of eight.
struct PhiloxWord {
    std::uint32_t block;
    int word;
};

QUADRAT_HOST_DEVICE inline PhiloxWord philox_word(std::int64_t position) {
    const auto at = static_cast<std::uint32_t>(position);
    return {at / 32 * 8 + at % 8, static_cast<int>(at / 8 % 4)};
}

// The position of a block's first word; the others are 8, 16 and 24 further.
QUADRAT_HOST_DEVICE inline std::int64_t first_position(std::int64_t block) { return block / 8 * 32 + block % 8; }

QUADRAT_HOST_DEVICE inline rng::Philox philox_counter(const PhiloxMasking& how, std::uint64_t row_key,
                                                      std::uint32_t first) {
    return {{first, how.epoch, static_cast<std::uint32_t>(row_key), static_cast<std::uint32_t>(row_key >> 32)},
            {static_cast<std::uint32_t>(how.seed), static_cast<std::uint32_t>(how.seed >> 32)}};
}

QUADRAT_HOST_DEVICE inline std::uint32_t draw_of_word(std::uint32_t word) { return word >> 1; }

// The draw of one token.
QUADRAT_HOST_DEVICE inline std::uint32_t philox_draw(const PhiloxMasking& how, std::uint64_t row_key,
                                                     std::int64_t position) {
    const PhiloxWord drawn = philox_word(position);
    return draw_of_word(rng::philox(philox_counter(how, row_key, drawn.block)).word[drawn.word]);
}

// What a token becomes that is to be a random one: the upper end of 64 bits times the size of the vocabulary.
QUADRAT_HOST_DEVICE inline std::int64_t philox_token(const PhiloxMasking& how, std::uint64_t row_key,
                                                     std::int64_t position) {
    const std::uint32_t at = 0x80000000U | static_cast<std::uint32_t>(position);
    const rng::PhiloxWords drawn = rng::philox(philox_counter(how, row_key, at));
    const auto size = static_cast<std::uint64_t>(how.vocab_size);
    return static_cast<std::int64_t>((drawn.word[1] * size + (drawn.word[0] * size >> 32)) >> 32);
}

// What a masked token becomes.
QUADRAT_HOST_DEVICE inline std::int64_t masked_id(const PhiloxMasking& how, const MaskBars& bars, std::uint32_t draw,
                                                  std::uint64_t row_key, std::int64_t position, std::int64_t id) {
    if (draw < bars.replaced) {
        return how.mask_id;
    }
    return draw < bars.randomised ? philox_token(how, row_key, position) : id;
}

// Row i has lengths[i] < 2^31 tokens from start[i] on, the key row_keys[i], and a position for each token from 0 on.
// `words` says what a token is, see Word; the first token of a word says whether it is masked. Labels are the ids of
// masked tokens and -100 elsewhere, those ids are replaced. `count` words, ids and labels.
Status philox_mask(const PhiloxMasking& how, Span<const std::uint64_t> row_keys, const std::int64_t* start,
                   const std::int64_t* lengths, std::int64_t count, const std::uint8_t* words, std::int64_t* ids,
                   std::int64_t* labels);

// The key of a row, from its tokens: draws then follow a row wherever it goes. It is a sum, whose parts the threads of
// a GPU add up in any order.
//
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
