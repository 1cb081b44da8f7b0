// The tokens that a mask keeps: where they are, how to take them out of a batch, and how to put them back. Numbers that
// follow each other are copied together. Another thread may change them: each is checked where it is used.
#pragma once

#include "types.hpp"

namespace quadrat {

// values: `size` tokens of `token` bytes. out: indices.size tokens. The place of an index of no token is reported.
Status take_tokens(const void* values, std::int64_t size, std::size_t token, Span<const std::int64_t> indices,
                   void* out);

// The way back from take_tokens, and its derivative: zeros where no token goes.
// values: indices.size tokens of `token` bytes. out: `size` tokens. Of several for one place the last stays. An index
// that is not a place of the output is reported, with its place in `row`; then `out` is not complete.
Status put_tokens(const void* values, std::size_t token, Span<const std::int64_t> indices, void* out,
                  std::int64_t size);

// A mask is counted first, so that the indices get a tensor of their size.
struct MaskFacts {
    std::int64_t total = 0;    // tokens kept
    std::int64_t longest = 0;  // tokens kept of one row, at most
    bool plain = true;         // nothing but 0 and 1
};

// mask: [rows, width] integers of `item` bytes, not 0 for the tokens to keep. lengths: the tokens kept of each row.
Status mask_layout(const void* mask, std::size_t item, std::int64_t width, Span<std::int32_t> cu_seqlens,
                   std::int32_t* lengths, MaskFacts* facts);

// out: [total], the places in the flattened mask that are not 0, rising. A mask that has changed since it was counted
// is reported, and nothing written past the end.
Status mask_indices(const void* mask, std::size_t item, std::int64_t size, Span<std::int64_t> out);

// mask: [rows, width] bytes. offsets: [rows + 1]; from 0, where the kept tokens of each row begin and end.
Status count_masked(const std::uint8_t* mask, std::int64_t width, Span<std::int64_t> offsets);

// The tokens that a mask keeps, wherever they stand in their rows. Runs of them are found a word of the mask at a time.
// padded: [rows, width] tokens of `token` bytes. out: offsets[rows] tokens, side by side. What a mask that has changed
// since it was counted keeps beyond that is not written but reported.
Status unpad_masked(const void* padded, const std::uint8_t* mask, std::int64_t width, std::size_t token,
                    Span<const std::int64_t> offsets, void* out);

}  // namespace quadrat
