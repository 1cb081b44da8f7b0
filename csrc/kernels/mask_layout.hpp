// mask_layout: where the tokens are that a mask keeps, as attention kernels without padding ask for it. The mask is
// read as it is, whatever the size of its integers. It is counted first, so that the indices get a tensor of their
// size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "span.hpp"
#include "status.hpp"

namespace quadrat {

struct MaskFacts {
    std::int64_t total = 0;    // tokens kept
    std::int64_t longest = 0;  // tokens kept of one row, at most
    bool plain = true;         // nothing but 0 and 1
};

// mask: [rows, width] integers of `item` bytes, not 0 for the tokens to keep. cu_seqlens: [rows + 1]; lengths: [rows],
// the tokens kept of each row.
Status mask_layout(const void* mask, std::size_t item, std::int64_t width, Span<std::int32_t> cu_seqlens,
                   std::int32_t* lengths, MaskFacts* facts);

// out: [total], the places in the flattened mask that are not 0, rising. A mask that has changed since it was counted
// is reported, and nothing written past the end.
Status mask_indices(const void* mask, std::size_t item, std::int64_t size, Span<std::int64_t> out);

}  // namespace quadrat
