// fill_ends: the blanks between rows that lie one after the other, each with a place of its own.
#pragma once

#include "kind.hpp"
#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// Row i has the place from start[i] to before start[i + 1]; `start` has one entry more than there are rows, the last
// at most `out_size`. Writes `value`, one element of `kind`, behind the first lengths[i] elements of each place, and
// touches nothing else.
Status fill_ends(Span<const std::int64_t> start, const std::int64_t* lengths, Kind kind, const void* value, void* out,
                 std::int64_t out_size);

}  // namespace quadrat
