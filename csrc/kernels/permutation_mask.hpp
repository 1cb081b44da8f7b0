// permutation_mask: permutation language modelling (XLNet) on a padded batch. All numbers are drawn first, in the
// reference's order: every row's spans, then one order a row. Streamed stores were no faster for the two outputs.
#pragma once

#include <cstdint>

#include "rng/draws.hpp"
#include "types.hpp"

namespace quadrat {

// How long spans are, and where they may begin.
struct SpanRule {
    Span<const std::int64_t> contexts;  // contexts[n - 1]: the tokens that a span of n tokens reserves, itself included
    std::int64_t slack;                 // how far a span may reach past what it reserves: 0 in torch, 1 in NumPy
};

// Draws the spans of each row until they have reserved `width` tokens: chosen, [count, width], becomes 1 in them and 0
// elsewhere; what lies past the end of a row is cut off.
Status choose_spans(rng::IntegerDraws& draws, const SpanRule& rule, std::int64_t count, std::int64_t width,
                    std::uint8_t* chosen);

// A batch and what was drawn for it; tokens are [count, width].
struct PermutationBatch {
    std::int64_t count;
    std::int64_t width;              // even
    const std::uint8_t* chosen;      // 1 inside a span
    const std::uint8_t* functional;  // 1 for special tokens and padding, which are never predicted
    const std::int64_t* order;       // [count, width / 2]: a permutation of 0 ... width / 2 - 1 for each row
    std::int64_t mask_id;
};

// Predicted are the tokens that are chosen and not functional: their ids go to `labels`, which is -100 elsewhere, and
// become `mask_id`. perm_mask[i, a, b] is 1 where token a may not see token b: b is predicted, and a does not come
// after it in the order of its row. target_mapping[i] is the identity. Both are [count, width, width]. `scratch` has
// room for 2 * width.
void permutation_mask(const PermutationBatch& batch, std::int64_t* ids, std::int64_t* labels, float* perm_mask,
                      float* target_mapping, std::int32_t* scratch);

}  // namespace quadrat
