// sort_rows: row numbers by a key of theirs, in linear time: one pass per 12 bits by which keys differ. Lengths of up
// to 4,095 tokens need one pass, where a sort that compares needs twenty for a million rows. Keys of many rows are not
// in the caches: each is read once for 24 bits, well before it is needed, and sorted in one word with its row.
#pragma once

#include <cstdint>

#include "span.hpp"
#include "watch.hpp"

namespace quadrat {

// Puts the rows, below 2^40, with the greatest keys[row] first; rows of equal keys keep their order.
// spare: room for as many rows. Where the caller ends it, `rows` holds anything.
void sort_rows(const std::int64_t* keys, Span<std::int64_t> rows, std::int64_t* spare, Watch& watch);

}  // namespace quadrat
