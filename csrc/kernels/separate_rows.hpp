// separate_rows: one value at the start of every row, so that in a flat batch no token is predicted from another row.
#pragma once

#include "kind.hpp"
#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// out: `out_size` elements of `kind`. Writes `value`, one element, to out[start[i]] and touches nothing else; nothing
// is written for a start outside the output.
Status separate_rows(Span<const std::int64_t> start, Kind kind, const void* value, void* out, std::int64_t out_size);

}  // namespace quadrat
