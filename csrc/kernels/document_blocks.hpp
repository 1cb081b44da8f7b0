// document_blocks: which blocks of a document mask are empty, partial or full, as FlexAttention's BlockMask lists them.
#pragma once

#include "types.hpp"

namespace quadrat {

// How many tokens of its own document a token sees before and after itself.
struct Reach {
    std::int64_t before;
    std::int64_t after;
};

struct BlockSize {
    std::int64_t row;
    std::int64_t column;
};

// The blocks of one sort, for each row of blocks: how many, and their columns, rising; then the other columns, rising.
struct BlockLists {
    std::int32_t* counts;   // [rows of blocks]
    std::int32_t* columns;  // [rows of blocks, columns of blocks]
};

// Document d runs from offsets[d], the first from 0, to before offsets[d + 1]; what follows the last one, up to
// `total`, is one document more. Full: each token of the row sees each of the column; a block that runs past `total` is
// none.
//
// What a token sees is one run of tokens, whose ends move forward from token to token. What any token of a block sees,
// and what all of them do, are therefore one run each, which the first and the last token tell: no pair is looked at.
Status document_blocks(Span<const std::int64_t> offsets, std::int64_t total, Reach reach, BlockSize size,
                       BlockLists partial, BlockLists full);

}  // namespace quadrat
