// choose_words: which words of a batch are masked, as transformers 4.x chooses them: the words of a row in random
// order, each taken whole if it still fits what the row may lose. A word is a number per token; no string is read.
#pragma once

#include <cstdint>

#include "rng/draws.hpp"
#include "types.hpp"

namespace quadrat {

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

// ids: [lengths.size, width], rows of these lengths padded on `side`. pieces: see WordPiece, by id. Chooses words, in
// the order of draws.permutation, until a share of `probability` of the row's tokens is chosen, 1 to 512. Writes the
// rising positions of those to mask to `positions` (room for all ids), and their number to `chosen`. Where an id has no
// token, says so and has drawn nothing. scratch: room for 4 * width.
Status choose_words(rng::IntegerDraws& draws, const std::int64_t* ids, Span<const std::int64_t> lengths,
                    std::int64_t width, Side side, Span<const std::uint8_t> pieces, const Joined& joined,
                    double probability, std::int64_t* scratch, std::int64_t* positions, std::int64_t* chosen);

}  // namespace quadrat
