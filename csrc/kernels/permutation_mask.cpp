#include "permutation_mask.hpp"

#include <algorithm>
#include <cstddef>

#include "bytes.hpp"
#include "mask_tokens.hpp"
#include "simd.hpp"

namespace quadrat {
namespace {

// Whether every span reserves something, and has somewhere to begin.
bool is_sound(const SpanRule& rule) {
    for (std::int64_t n = 1; n <= rule.contexts.size; ++n) {
        const std::int64_t context = rule.contexts[n - 1];
        if (context < 1 || context >= rng::one_word_integers || context - n + rule.slack < 0) {
            return false;
        }
    }
    return rule.contexts.size > 0 && rule.contexts.size < rng::one_word_integers && rule.slack >= 0 && rule.slack <= 1;
}

// One row of perm_mask: 1 where `rank` is not above what a token asks of those who see it.
QUADRAT_CLONES void write_unseen(std::int32_t rank, const std::int32_t* limit, std::int64_t width, float* out) {
    for (std::int64_t b = 0; b < width; ++b) {
        out[b] = rank <= limit[b] ? 1.0F : 0.0F;
    }
}

}  // namespace

Status choose_spans(rng::IntegerDraws& draws, const SpanRule& rule, std::int64_t count, std::int64_t width,
                    std::uint8_t* chosen) {
    if (count < 0 || width < 0 || !is_sound(rule)) {
        return {Code::bad_argument};
    }
    for (std::int64_t i = 0; i < count; ++i) {
        std::uint8_t* const row = chosen + i * width;
        fill_bytes(row, 0, static_cast<std::size_t>(width));
        for (std::int64_t reserved = 0; reserved < width;) {
            const std::int64_t span = 1 + draws.below(rule.contexts.size);
            const std::int64_t context = rule.contexts[span - 1];
            const std::int64_t first = std::min(width, reserved + draws.below(context - span + rule.slack + 1));
            fill_bytes(row + first, 1, static_cast<std::size_t>(std::min(span, width - first)));
            reserved += context;
        }
    }
    return {};
}

void permutation_mask(const PermutationBatch& batch, std::int64_t* ids, std::int64_t* labels, float* perm_mask,
                      float* target_mapping, std::int32_t* scratch) {
    const std::int64_t width = batch.width, half = width / 2;
    std::int32_t* const rank = scratch;
    std::int32_t* const limit = scratch + width;
    // The identities as one run of zeros: the processor then writes whole lines without fetching them.
    fill_bytes(target_mapping, 0, static_cast<std::size_t>(batch.count * width * width) * sizeof *target_mapping);
    for (std::int64_t i = 0; i < batch.count; ++i) {
        for (std::int64_t b = 0; b < width; ++b) {
            const std::int64_t at = i * width + b;
            const bool functional = batch.functional[at] != 0, predicted = batch.chosen[at] != 0 && !functional;
            // The two halves are permuted alike and do not mix.
            const std::int64_t place = batch.order[i * half + b % half] + (b < half ? 0 : half);
            rank[b] = predicted || functional ? static_cast<std::int32_t>(place) : -1;
            limit[b] = predicted ? rank[b] : -2;  // below every rank: all may see it
            labels[at] = predicted ? ids[at] : ignore_index;
            ids[at] = predicted ? batch.mask_id : ids[at];
        }
        for (std::int64_t a = 0; a < width; ++a) {
            const std::int64_t out = (i * width + a) * width;
            write_unseen(rank[a], limit, width, perm_mask + out);
            target_mapping[out + a] = 1.0F;
        }
    }
}

}  // namespace quadrat
