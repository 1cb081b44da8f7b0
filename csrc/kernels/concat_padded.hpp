// concat_padded: batches of different widths below one another, each row filled out to the widest. Nothing is
// converted: tokens are bytes, whatever they are made of.
#pragma once

#include <cstddef>

#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// Rows of one width, side by side: [rows, width] tokens.
struct Block {
    const void* data = nullptr;
    std::int64_t rows = 0;
    std::int64_t width = 0;
};

// out: [rows, width] tokens of `token` bytes; the rows of all blocks, in order, each followed by copies of the `item`
// bytes at `fill`, of which a token is a multiple. The last row is written first, so that blocks may lie in `out`
// itself, one after the other from its beginning: memory that grew with the blocks becomes the result.
Status concat_padded(Span<const Block> blocks, std::int64_t width, std::size_t token, const void* fill,
                     std::size_t item, void* out, std::int64_t rows);

}  // namespace quadrat
