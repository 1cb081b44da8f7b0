// unpad: the rows of a padded batch to flat values, the way back from copy_rows and fill_gaps. Nothing is converted, so
// that tokens are bytes here, whatever they are made of.
#pragma once

#include <cstddef>

#include "row.hpp"
#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// padded: [offsets.size - 1, width] tokens of `token` bytes. out: `out_size` tokens; row i goes to offsets[i] and ends
// at offsets[i + 1]. Zeros fill what lies before the first row and after the last.
Status unpad(const void* padded, std::int64_t width, Side side, Span<const std::int64_t> offsets, std::size_t token,
             void* out, std::int64_t out_size);

}  // namespace quadrat
