// fill_gaps: the blanks that fill a ragged batch out to full measure.
#pragma once

#include "row.hpp"
#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// out: [lengths.size, width] elements of `kind`, contiguous. Writes `value` (one element of `kind`) to every place that
// a row of lengths[i] elements, padded on `side`, leaves free; touches nothing else.
Status fill_gaps(Span<const std::int64_t> lengths, std::int64_t width, Side side, Kind kind, const void* value,
                 void* out);

}  // namespace quadrat
