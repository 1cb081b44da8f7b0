// Orders of rows: by a key of theirs, and random.
#pragma once

#include "types.hpp"

namespace quadrat {

// Puts the rows, below 2^40, with the greatest keys[row] first; rows of equal keys keep their order.
// spare: room for as many rows. Where the caller ends it, `rows` holds anything.
//
// In linear time: one pass per 12 bits by which keys differ. Lengths of up to 4,095 tokens need one pass, where a sort
// that compares needs twenty for a million rows. Keys of many rows are not in the caches: each is read once for 24
// bits, well before it is needed, and sorted in one word with its row.
void sort_rows(const std::int64_t* keys, Span<std::int64_t> rows, std::int64_t* spare, Watch& watch);

// Writes 0 ... out.size - 1 in an order that depends on (seed, epoch, stream) alone, so that every process of a run
// makes the same one and an epoch is made again without those before it. Code::bad_argument: for 2^32 rows and more.
// The shuffle of Fisher and Yates, by words of Philox: vectors make 64 of them at a time.
Status philox_order(std::uint64_t seed, std::uint32_t epoch, std::uint32_t stream, Span<std::int64_t> out,
                    Watch& watch);

}  // namespace quadrat
