#include "mask_tokens.hpp"

#include "bytes.hpp"
#include "simd.hpp"

namespace quadrat {

void mask_tokens(rng::Draws& draws, double p, const Replacement& how, const std::uint8_t* words, std::int64_t count,
                 std::int64_t width, std::int64_t* ids, std::int64_t* labels, std::int64_t* positions,
                 std::uint8_t* hit, std::int64_t* other) {
    const std::int64_t found = draws.trials(p, words, count, other);
    std::int64_t chosen = 0;
    for (std::int64_t i = 0; i < found; ++i) {
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

void word_starts(const std::int64_t* offsets, const std::uint8_t* special, std::int64_t length, std::uint8_t* words) {
    for (std::int64_t i = 0; i < length; ++i) {
        const std::int64_t end_before = i == 0 ? -1 : offsets[2 * i - 1];
        const bool begins = offsets[2 * i] != end_before || (i > 0 && special[i - 1] == 1);
        words[i] = special[i] != 0 ? word_none : begins ? word_begins : word_inside;
    }
}

void word_starts_of_ids(const std::int64_t* word_ids, const std::uint8_t* special, std::int64_t length,
                        std::uint8_t* words) {
    for (std::int64_t i = 0; i < length; ++i) {
        const bool begins = i == 0 || word_ids[i] != word_ids[i - 1] || special[i - 1] != 0;
        words[i] = special[i] != 0 || word_ids[i] < 0 ? word_none : begins ? word_begins : word_inside;
    }
}

QUADRAT_CLONES void causal_labels(const std::int64_t* ids, std::int64_t count, std::int64_t pad_id,
                                  std::int64_t* labels) {
    for (std::int64_t i = 0; i < count; ++i) {
        labels[i] = ids[i] == pad_id ? ignore_index : ids[i];
    }
}

}  // namespace quadrat
