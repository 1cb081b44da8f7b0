// Masks for language modelling, drawing just what the reference draws.
#pragma once

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

// Masked language modelling on a padded batch. Draws which of `count` tokens are masked: one trial of probability p for
// each that begins a word (`words`, see Word), then the rest of its word, up to the end of its row of `width`; and
// replaces them. `positions`, `hit` and `other` are scratch with room for `count`.
void mask_tokens(rng::Draws& draws, double p, const Replacement& how, const std::uint8_t* words, std::int64_t count,
                 std::int64_t width, std::int64_t* ids, std::int64_t* labels, std::int64_t* positions,
                 std::uint8_t* hit, std::int64_t* other);

// Labels are the ids at `positions` and -100 elsewhere; those ids are replaced as `how` says. `count` ids and labels.
// `hit` and `random` are scratch with room for as many as there are positions.
void replace_tokens(rng::Draws& draws, const Replacement& how, Span<const std::int64_t> positions, std::int64_t count,
                    std::int64_t* ids, std::int64_t* labels, std::uint8_t* hit, std::int64_t* random);

// out[i] = 1 where bit ids[i] of `set` is 1, else 0; ids that are negative or past the set are not special.
void special_tokens(const std::int64_t* ids, std::int64_t count, Span<const std::uint64_t> set, std::uint8_t* out);

// Where words begin among the tokens of a row. places: character offsets, (start, end) a token, which begins a word
// when it does not start where the one before ended; or the number of each token's word, negative where it belongs to
// none. A special token breaks words; with offsets, only where its number in `special` is 1.
void word_starts(const std::int64_t* places, bool offsets, const std::uint8_t* special, std::int64_t length,
                 std::uint8_t* words);

// Of a causal language model: labels[i] = ids[i], or -100 where that is `pad_id`. `count` of each.
void causal_labels(const std::int64_t* ids, std::int64_t count, std::int64_t pad_id, std::int64_t* labels);

// What a token is to the words of its row; bits.
enum WordPiece : std::uint8_t {
    piece_joins = 1,    // "##...": it continues the word before it, if there is one
    piece_apart = 2,    // "[CLS]" and "[SEP]" are part of no word
    piece_kept = 4,     // special tokens and padding: chosen like others, and then not masked
    piece_missing = 8,  // no token has this id
};

// Positions of a row that join the word before them whatever their token: those of row i are
// values[offsets[i]] ... values[offsets[i + 1] - 1], and may lie outside the row. No offsets: there are none.
struct Joined {
    const std::int64_t* values = nullptr;
    const std::int64_t* offsets = nullptr;
};

// Which words of a batch are masked, as transformers 4.x chooses them: the words of a row in random order, each taken
// whole if it still fits what the row may lose. A word is a number per token; no string is read.
// ids: [lengths.size, width], rows of these lengths padded on `side`. pieces: see WordPiece, by id. Chooses words, in
// the order of draws.permutation, until a share of `probability` of the row's tokens is chosen, 1 to 512. Writes the
// rising positions of those to mask to `positions` (room for all ids), and their number to `chosen`. Where an id has no
// token, says so and has drawn nothing. scratch: room for 4 * width.
Status choose_words(rng::IntegerDraws& draws, const std::int64_t* ids, Span<const std::int64_t> lengths,
                    std::int64_t width, Side side, Span<const std::uint8_t> pieces, const Joined& joined,
                    double probability, std::int64_t* scratch, std::int64_t* positions, std::int64_t* chosen);

// How long spans are, and where they may begin.
struct SpanRule {
    Span<const std::int64_t> contexts;  // contexts[n - 1]: the tokens that a span of n tokens reserves, itself included
    std::int64_t slack;                 // how far a span may reach past what it reserves: 0 in torch, 1 in NumPy
};

// Permutation language modelling draws all its numbers first, as the reference does: every row's spans, here, then one
// order a row. Draws the spans of each row until they have reserved `width` tokens: chosen, [count, width], becomes 1
// in them and 0 elsewhere; what lies past the end of a row is cut off.
Status choose_spans(rng::IntegerDraws& draws, const SpanRule& rule, std::int64_t count, std::int64_t width,
                    std::uint8_t* chosen);

// A batch and what was drawn for it; tokens are [count, width].
struct PermutationBatch {
    std::int64_t count;
    std::int64_t width;              // even
    const std::uint8_t* chosen;      // 1 inside a span
    const std::uint8_t* functional;  // 1 for special tokens and padding, which are never predicted
    const std::int64_t* order;       // [count, width / 2]: a permutation of 0 ... width / 2 - 1 for each row
    std::int64_t mask_id;
};

// Permutation language modelling (XLNet) on a padded batch. Predicted are the tokens that are chosen and not
// functional: their ids go to `labels`, -100 elsewhere, and become `mask_id`. perm_mask[i, a, b] is 1 where token a may
// not see token b: b is predicted, and a does not come after it in the order of its row. target_mapping[i] is the
// identity. Both are [count, width, width]. `scratch` has room for 2 * width.
void permutation_mask(const PermutationBatch& batch, std::int64_t* ids, std::int64_t* labels, float* perm_mask,
                      float* target_mapping, std::int32_t* scratch);

}  // namespace quadrat
