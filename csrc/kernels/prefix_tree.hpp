// Rows that begin alike as a tree, so that a model computes what they share once.
//
// Each row goes down the tree as far as its tokens are those of the nodes, and divides the last one where they part.
// The next node is looked up by its first token, so the work grows with the tokens, not with the rows at a fork. Which
// nodes are long enough to be shared is decided afterwards, from the top, so that it does not depend on the order of
// rows.
#pragma once

#include "types.hpp"

namespace quadrat {

struct PrefixNode {
    std::int64_t start;   // its first token in the flat order
    std::int64_t length;  // in tokens
    std::int64_t parent;  // -1 for a root
    std::int64_t depth;   // the tokens of its ancestors
};

struct PrefixTotals {
    std::int64_t nodes = 0;
    std::int64_t tokens = 0;
};

// How many int64 `prefix_tree` needs besides its outputs; -1 for fewer than no rows.
std::int64_t prefix_tree_scratch(std::int64_t rows);

// The tree of rows that lie side by side: row i has the cells from offsets[i], the first from 0, to before
// offsets[i + 1], and the last row ends at ids.size. Rows share the tokens from their beginnings on that have the same
// ids and, where there are positions, the same positions, `[ids.size]`; a node that rows share has `shortest` tokens at
// least. A node ends where its rows part, or one of them ends. A parent comes before its children, siblings in the
// order of their first rows; what is below a node follows it at once. Nodes lie in the flat order one after the other.
//
// nodes: room for twice the rows. token_of_cell: [ids.size], the flat token that computes each cell. cell_of_token:
// room for ids.size; for each flat token its cell in the first row that has it. Code::bad_start names the first row
// that ends before it begins or past the ids, or the number of rows where ids follow the last one.
Status prefix_tree(Span<const std::int64_t> ids, const std::int64_t* positions, Span<const std::int32_t> offsets,
                   std::int64_t shortest, std::int64_t* scratch, PrefixNode* nodes, std::int64_t* token_of_cell,
                   std::int64_t* cell_of_token, PrefixTotals* totals);

}  // namespace quadrat
