// word_starts: where words begin among the tokens of a row, by a look at the token before.
#pragma once

#include <cstdint>

#include "mask_tokens.hpp"

namespace quadrat {

// From character offsets, (start, end) a token: a token begins a word when it does not start where the one before
// ended, or when that was special. special: 0, 1, or any other number for special tokens that do not break words.
void word_starts(const std::int64_t* offsets, const std::uint8_t* special, std::int64_t length, std::uint8_t* words);

// From the number of each token's word, negative where it belongs to none: a token begins a word when its number is not
// that of the token before.
void word_starts_of_ids(const std::int64_t* word_ids, const std::uint8_t* special, std::int64_t length,
                        std::uint8_t* words);

}  // namespace quadrat
