// pack_rows: which rows share a pack of at most max_length tokens.
//
// Best fit and first fit take the longest row first. Best fit looks for the pack with the least room that suffices: a
// bit per amount of room says whether a pack has it, and a bit per word of those whether one of them is set, so that a
// search reads a word per level whatever the number of packs. Rows of one length go into packs that are alike in one
// step, so that the work grows with the number of different lengths, besides sorting rows and writing packs. First fit
// looks for the first pack with enough room, in a tree of maxima with sixteen children a node.
#pragma once

#include "types.hpp"

namespace quadrat {

enum class Fit : std::uint8_t {
    best,      // longest row first, into the pack with the least room for it, and of those the one that got it first
    first,     // longest row first, into the first pack with room for it
    in_order,  // rows as they come, into the last pack or a new one
};

// Best fit keeps a number per token of a pack.
inline constexpr std::int64_t most_in_pack = std::int64_t{1} << 27;

// A second size of rows, such as their images, of which a pack holds at most this many. Without sizes there is none.
struct SecondLimit {
    const std::int64_t* counts = nullptr;  // by row
    std::int64_t most = 0;
};

// How many int64 `pack_rows` needs besides its outputs; -1 for limits that it does not take.
std::int64_t pack_rows_scratch(std::int64_t rows, std::int64_t max_length, Fit fit, const SecondLimit& second = {});

// Pack p has the rows rows[offsets[p]] ... rows[offsets[p + 1] - 1], in the order in which they were placed. rows: room
// for all; offsets: for one more. Rows of equal length are placed in their order, and rows without tokens all in one
// pack. Code::row_too_long names the first row that fits no pack, Code::bad_start one of negative length or count.
// With a second limit there is no first fit, and best fit takes, of the packs with the least room for the tokens, those
// with the least for the counts, and of these the one that got it first; (max_length + 1) * (most + 1) is at most
// most_in_pack.
Status pack_rows(Span<const std::int64_t> lengths, std::int64_t max_length, Fit fit, const SecondLimit& second,
                 std::int64_t* scratch, std::int64_t* rows, std::int64_t* offsets, std::int64_t* packs, Watch& watch);

}  // namespace quadrat
