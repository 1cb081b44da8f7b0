// group_by_length: the order of rows that LengthGroupedSampler of transformers gives them. Rows of one megabatch are
// sorted from the longest to the shortest, and the longest row of all comes first.
#pragma once

#include "span.hpp"
#include "status.hpp"
#include "watch.hpp"

namespace quadrat {

// rows: numbers of rows, each below lengths.size; they are sorted in place, `megabatch` at a time. spare: as many as a
// megabatch has rows. Code::bad_start names the first place in `rows` that holds no such number; what comes
// before its megabatch is sorted by then. Code::bad_argument: megabatch is less than 1, or `spare` is too small.
Status group_by_length(Span<const std::int64_t> lengths, std::int64_t megabatch, Span<std::int64_t> spare,
                       Span<std::int64_t> rows, Watch& watch);

}  // namespace quadrat
