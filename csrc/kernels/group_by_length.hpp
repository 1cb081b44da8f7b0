// group_by_length: the order of rows that LengthGroupedSampler of transformers gives them. Rows of one megabatch are
// sorted from the longest to the shortest, and the longest row of all comes first.
//
// A megabatch is small (50 batches) and its lengths take few bytes, so a radix sort by bytes is linear and needs one or
// two passes. It is stable, as Python's `sorted(reverse=True)` is.
#pragma once

#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// A row while its megabatch is sorted; the smaller keys come first.
struct RankedRow {
    std::uint64_t key;
    std::int64_t row;
};

// rows: numbers of rows, each below lengths.size; they are sorted in place, `megabatch` at a time. scratch: twice as
// many as a megabatch has rows. Code::bad_start names the first place in `rows` that holds no such number; what comes
// before its megabatch is sorted by then. Code::bad_argument: megabatch is less than 1, or the scratch is too small.
Status group_by_length(Span<const std::int64_t> lengths, std::int64_t megabatch, Span<RankedRow> scratch,
                       Span<std::int64_t> rows);

}  // namespace quadrat
