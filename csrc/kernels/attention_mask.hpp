// attention_mask: ones where a padded batch has tokens, zeros where it has padding.
#pragma once

#include "row.hpp"
#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// out: [lengths.size, width] elements of `kind`, contiguous; every element is written.
Status attention_mask(Span<const std::int64_t> lengths, std::int64_t width, Side side, Kind kind, void* out);

}  // namespace quadrat
