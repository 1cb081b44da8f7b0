// check_offsets: whether the rows that offsets tell of lie within the values, and which is the longest. Users may
// change offsets at any time: whatever reads or writes at a row's address first checks a copy that nobody else has.
#pragma once

#include "span.hpp"
#include "status.hpp"

namespace quadrat {

struct LongestRow {
    std::int64_t row = 0;  // the first of those; 0 where there is no row
    std::int64_t length = 0;
};

// offsets: one more than there are rows. Code::bad_start names the first row that does not begin and end, in this
// order, within 0 ... size, and row 0 where there is none to name.
Status check_offsets(Span<const std::int64_t> offsets, std::int64_t size, LongestRow* longest);

}  // namespace quadrat
