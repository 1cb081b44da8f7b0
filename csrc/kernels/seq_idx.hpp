// seq_idx: which row each token of a flat batch belongs to.
#pragma once

#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// out: `out_size` elements, at least as many as the rows have tokens; the places after the last row get -1.
Status seq_idx(Span<const std::int64_t> lengths, std::int32_t* out, std::int64_t out_size);

}  // namespace quadrat
