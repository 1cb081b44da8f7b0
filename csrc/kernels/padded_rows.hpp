// What a padded batch has besides the tokens of its rows, and the way back to flat rows.
#pragma once

#include "types.hpp"

namespace quadrat {

// Ones where there are tokens, zeros where there is padding. out: [lengths.size, width] elements of `kind`, contiguous.
Status attention_mask(Span<const std::int64_t> lengths, std::int64_t width, Side side, Kind kind, void* out);

// The padding. out: [lengths.size, width, inner] elements of `kind`, contiguous. Writes `value` (one element of `kind`)
// to every place that a row of lengths[i] tokens, padded on `side`, leaves free; touches nothing else.
Status fill_gaps(Span<const std::int64_t> lengths, std::int64_t width, std::int64_t inner, Side side, Kind kind,
                 const void* value, void* out);

// The way back from copy_rows and fill_gaps. Nothing is converted: tokens are bytes, whatever they are made of.
// padded: [offsets.size - 1, width] tokens of `token` bytes. out: `out_size` tokens; row i goes to offsets[i] and ends
// at offsets[i + 1]. Zeros fill what lies before the first row and after the last.
Status unpad(const void* padded, std::int64_t width, Side side, Span<const std::int64_t> offsets, std::size_t token,
             void* out, std::int64_t out_size);

}  // namespace quadrat
