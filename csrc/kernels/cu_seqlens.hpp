// cu_seqlens: where the rows of a flat batch begin, and where the last one ends; cumulative sequence lengths.
#pragma once

#include "kind.hpp"
#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// out: lengths.size + 1 elements of `kind`, int32 (what attention kernels take) or int64.
Status cu_seqlens(Span<const std::int64_t> lengths, Kind kind, void* out);

}  // namespace quadrat
