#include "mask_tokens.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "bytes.hpp"
#include "simd.hpp"

namespace quadrat {
namespace {

constexpr std::int64_t most = 512;  // tokens masked in a row
constexpr std::int64_t no_word = -1;
constexpr std::int64_t taken = 0;  // in place of a word's size, which is 1 at least

Status check(const std::int64_t* ids, Span<const std::int64_t> lengths, std::int64_t width, Side side,
             Span<const std::uint8_t> pieces) {
    for (std::int64_t i = 0; i < lengths.size; ++i) {
        const std::int64_t* const row = ids + padded_start(i, lengths[i], width, side);
        for (std::int64_t at = 0; at < lengths[i]; ++at) {
            if (row[at] < 0 || row[at] >= pieces.size || (pieces[row[at]] & piece_missing) != 0) {
                return {Code::out_of_range, i, at};
            }
        }
    }
    return {};
}

// Numbers the words of a row: word[at] for each token, sizes[word]. Returns how many there are.
std::int64_t number_words(const std::int64_t* ids, std::int64_t length, Span<const std::uint8_t> pieces,
                          const std::int64_t* joined, std::int64_t* word, std::int64_t* sizes) {
    std::int64_t words = 0;
    for (std::int64_t at = 0; at < length; ++at) {
        const bool refers = joined != nullptr && joined[at] != 0;
        const std::uint8_t piece = pieces[ids[at]];
        if (!refers && (piece & piece_apart) != 0) {
            word[at] = no_word;
            continue;
        }
        if (words == 0 || !(refers || (piece & piece_joins) != 0)) {
            sizes[words++] = 0;
        }
        word[at] = words - 1;
        ++sizes[words - 1];
    }
    return words;
}

void mark_joined(const Joined& joined, std::int64_t row, std::int64_t length, std::int64_t* flags) {
    std::fill(flags, flags + length, 0);
    for (std::int64_t i = joined.offsets[row]; i < joined.offsets[row + 1]; ++i) {
        if (joined.values[i] >= 0 && joined.values[i] < length) {
            flags[joined.values[i]] = 1;
        }
    }
}

void take_words(const std::int64_t* order, std::int64_t words, std::int64_t wanted, std::int64_t* sizes) {
    for (std::int64_t i = 0; i < words && wanted > 0; ++i) {
        std::int64_t& size = sizes[order[i]];
        if (size <= wanted) {
            wanted -= size;
            size = taken;
        }
    }
}

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

void mask_tokens(rng::Draws& draws, double p, const Replacement& how, const std::uint8_t* words, std::int64_t count,
                 std::int64_t width, std::int64_t* ids, std::int64_t* labels, std::int64_t* positions,
                 std::uint8_t* hit, std::int64_t* other) {
    const std::int64_t hits = draws.trials(p, words, count, other);
    std::int64_t chosen = 0;
    for (std::int64_t i = 0; i < hits; ++i) {
        const std::int64_t first = other[i], end = first - first % width + width;
        positions[chosen++] = first;
        for (std::int64_t at = first + 1; at < end && words[at] != word_begins; ++at) {
            positions[chosen] = at;  // special tokens interrupt a word without ending it
            chosen += words[at] == word_inside ? 1 : 0;
        }
    }
    replace_tokens(draws, how, {positions, chosen}, count, ids, labels, hit, other);
}

void replace_tokens(rng::Draws& draws, const Replacement& how, Span<const std::int64_t> positions, std::int64_t count,
                    std::int64_t* ids, std::int64_t* labels, std::uint8_t* hit, std::int64_t* random) {
    find_fill(sizeof ignore_index)(labels, count, &ignore_index);
    for (const std::int64_t at : positions) {
        labels[at] = ids[at];
    }
    draws.trials_at(how.mask, count, positions, hit);
    std::int64_t left = 0;
    for (std::int64_t i = 0; i < positions.size; ++i) {
        if (hit[i] != 0) {
            ids[positions[i]] = how.mask_id;
        }
        random[left] = positions[i];
        left += hit[i] == 0 ? 1 : 0;
    }
    if (!how.has_random) {
        return;
    }
    draws.trials_at(how.random_of_rest, count, {random, left}, hit);
    std::int64_t replaced = 0;
    for (std::int64_t i = 0; i < left; ++i) {
        random[replaced] = random[i];
        replaced += hit[i];
    }
    if (draws.draws_every_word()) {
        draws.integers_at(how.vocab_size, count, {random, replaced}, ids);
        return;
    }
    for (std::int64_t i = 0; i < replaced; ++i) {
        ids[random[i]] = draws.below(how.vocab_size);
    }
}

// Without a branch, so that it vectorises: ids past the set look at its last bits, and do not count them.
QUADRAT_CLONES void special_tokens(const std::int64_t* ids, std::int64_t count, Span<const std::uint64_t> set,
                                   std::uint8_t* out) {
    if (set.size == 0) {
        fill_bytes(out, 0, static_cast<std::size_t>(count));
        return;
    }
    const std::uint64_t* const words = set.data;
    const auto last = static_cast<std::uint64_t>(set.size) - 1;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto id = static_cast<std::uint64_t>(ids[i]);
        const std::uint64_t word = id / 64;
        const std::uint64_t bit = words[word < last ? word : last] >> (id % 64) & 1U;
        out[i] = static_cast<std::uint8_t>(bit & static_cast<std::uint64_t>(word <= last));
    }
}

void word_starts(const std::int64_t* places, bool offsets, const std::uint8_t* special, std::int64_t length,
                 std::uint8_t* words) {
    const std::int64_t numbers = offsets ? 2 : 1;  // of a token
    for (std::int64_t i = 0; i < length; ++i) {
        const std::int64_t place = places[numbers * i], before = i == 0 ? -1 : places[numbers * i - 1];
        const bool none = special[i] != 0 || (!offsets && place < 0);
        const bool broken = i > 0 && (offsets ? special[i - 1] == 1 : special[i - 1] != 0);
        words[i] = none ? word_none : broken || place != before ? word_begins : word_inside;
    }
}

QUADRAT_CLONES void causal_labels(const std::int64_t* ids, std::int64_t count, std::int64_t pad_id,
                                  std::int64_t* labels) {
    for (std::int64_t i = 0; i < count; ++i) {
        labels[i] = ids[i] == pad_id ? ignore_index : ids[i];
    }
}

Status choose_words(rng::IntegerDraws& draws, const std::int64_t* ids, Span<const std::int64_t> lengths,
                    std::int64_t width, Side side, Span<const std::uint8_t> pieces, const Joined& joined,
                    double probability, std::int64_t* scratch, std::int64_t* positions, std::int64_t* chosen) {
    if (const Status status = check(ids, lengths, width, side, pieces); !status) {
        return status;
    }
    std::int64_t* const word = scratch;
    std::int64_t* const sizes = word + width;
    std::int64_t* const order = sizes + width;
    std::int64_t* const flags = joined.offsets == nullptr ? nullptr : order + width;
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < lengths.size; ++i) {
        const std::int64_t length = lengths[i];
        const std::int64_t start = padded_start(i, length, width, side);
        if (flags != nullptr) {
            mark_joined(joined, i, length, flags);
        }
        const std::int64_t words = number_words(ids + start, length, pieces, flags, word, sizes);
        draws.permutation(words, order);
        // Halves go to the even number, as Python's `round` takes them.
        const auto share = static_cast<std::int64_t>(std::nearbyint(static_cast<double>(length) * probability));
        take_words(order, words, std::min(most, std::max<std::int64_t>(share, 1)), sizes);
        for (std::int64_t at = 0; at < length; ++at) {
            const bool masked = word[at] != no_word && sizes[word[at]] == taken;
            positions[count] = start + at;  // `count` is at most the token's own number: there is room
            count += masked && (pieces[ids[start + at]] & piece_kept) == 0 ? 1 : 0;
        }
    }
    *chosen = count;
    return {};
}

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
