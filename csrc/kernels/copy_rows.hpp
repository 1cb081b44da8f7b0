// Rows of ragged columns: where they lie, and how they get to their outputs.
#pragma once

#include "types.hpp"

namespace quadrat {

struct LongestRow {
    std::int64_t row = 0;  // the first of those; 0 where there is no row
    std::int64_t length = 0;
};

// Whether the rows that offsets tell of lie within the values, and which is the longest. Users may change offsets at
// any time: whatever reads or writes at a row's address first checks a copy that nobody else has.
// offsets: one more than there are rows. Code::bad_start names the first row that does not begin and end, in this
// order, within 0 ... size, and row 0 where there is none to name.
Status check_offsets(Span<const std::int64_t> offsets, std::int64_t size, LongestRow* longest);

// Row i of a ragged column to out[start[i]]. Packing and padding are both this kernel: a flat output has
// start = offsets, a padded one start = i * width on the right or (i + 1) * width - length on the left.
// out: `out_size` elements of `out_kind`. Each source element is read once, each target element written once.
// Nothing outside [start[i], start[i] + length) is touched, and nothing at all for a row that would not fit.
Status copy_rows(Span<const Row> rows, Span<const std::int64_t> start, Kind out_kind, void* out, std::int64_t out_size);

}  // namespace quadrat
