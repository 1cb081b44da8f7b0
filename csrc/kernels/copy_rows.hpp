// copy_rows: row i of a ragged column to out[start[i]]. Packing and padding are both this kernel: a flat output has
// start = offsets, a padded one start = i * width on the right or (i + 1) * width - length on the left.
#pragma once

#include "row.hpp"
#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// out: `out_size` elements of `out_kind`. Each source element is read once, each target element written once.
// Nothing outside [start[i], start[i] + length) is touched, and nothing at all for a row that would not fit.
Status copy_rows(Span<const Row> rows, Span<const std::int64_t> start, Kind out_kind, void* out, std::int64_t out_size);

}  // namespace quadrat
