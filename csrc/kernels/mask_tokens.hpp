// mask_tokens: masked language modelling on a padded batch, drawing just what the reference draws. One number a token
// decides who is masked; for those alone the later passes are looked at, while the generator steps over all.
#pragma once

#include <cstdint>

#include "rng/draws.hpp"
#include "types.hpp"

namespace quadrat {

// What a token is to whole-word masking; without it every token that may be masked begins a word of its own.
enum Word : std::uint8_t {
    word_inside = 0,  // continues the word of the token before
    word_begins = 1,
    word_none = 2,  // a special token or padding: never masked
};

struct Replacement {
    double mask;            // the probability that a masked token becomes `mask_id`
    double random_of_rest;  // that one of the others becomes a random token
    bool has_random;        // whether the reference draws for the others at all
    std::int64_t mask_id;
    std::int64_t vocab_size;  // random tokens are drawn below this
};

inline constexpr std::int64_t ignore_index = -100;
inline constexpr std::int64_t most_tokens = rng::one_word_integers;  // a vocabulary is smaller, and so are its ids

// Draws which of `count` tokens are masked: one trial of probability p for each that begins a word (`words`, see Word),
// then the rest of its word, up to the end of its row of `width`; and replaces them. `positions`, `hit` and `other` are
// scratch with room for `count`.
void mask_tokens(rng::Draws& draws, double p, const Replacement& how, const std::uint8_t* words, std::int64_t count,
                 std::int64_t width, std::int64_t* ids, std::int64_t* labels, std::int64_t* positions,
                 std::uint8_t* hit, std::int64_t* other);

// Labels are the ids at `positions` and -100 elsewhere; those ids are replaced as `how` says. `count` ids and labels.
// `hit` and `random` are scratch with room for as many as there are positions.
void replace_tokens(rng::Draws& draws, const Replacement& how, Span<const std::int64_t> positions, std::int64_t count,
                    std::int64_t* ids, std::int64_t* labels, std::uint8_t* hit, std::int64_t* random);

// out[i] = 1 where bit ids[i] of `set` is 1, else 0; ids that are negative or past the set are not special.
void special_tokens(const std::int64_t* ids, std::int64_t count, Span<const std::uint64_t> set, std::uint8_t* out);

// Where words begin among the tokens of a row. From character offsets, (start, end) a token: a token begins a word when
// it does not start where the one before ended, or when that was special. special: 0, 1, or any other number for
// special tokens that do not break words.
void word_starts(const std::int64_t* offsets, const std::uint8_t* special, std::int64_t length, std::uint8_t* words);

// From the number of each token's word, negative where it belongs to none: a token begins a word when its number is not
// that of the token before.
void word_starts_of_ids(const std::int64_t* word_ids, const std::uint8_t* special, std::int64_t length,
                        std::uint8_t* words);

// Of a causal language model: labels[i] = ids[i], or -100 where that is `pad_id`. `count` of each.
void causal_labels(const std::int64_t* ids, std::int64_t count, std::int64_t pad_id, std::int64_t* labels);

}  // namespace quadrat
