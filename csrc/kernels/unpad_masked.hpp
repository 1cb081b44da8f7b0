// unpad_masked: the tokens of a padded batch that a mask keeps, wherever they stand in their rows. Runs of them are
// found a word of the mask at a time and copied as they are: an attention mask costs little more than the copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// mask: [rows, width] bytes, not 0 for the tokens to keep. offsets: [rows + 1]; from 0, where the kept tokens of each
// row begin and end.
Status count_masked(const std::uint8_t* mask, std::int64_t width, Span<std::int64_t> offsets);

// padded: [rows, width] tokens of `token` bytes. out: offsets[rows] tokens, side by side. What a mask that has changed
// since it was counted keeps beyond that is not written but reported.
Status unpad_masked(const void* padded, const std::uint8_t* mask, std::int64_t width, std::size_t token,
                    Span<const std::int64_t> offsets, void* out);

}  // namespace quadrat
