#include "philox_mask.hpp"

#include <algorithm>

#include "bytes.hpp"
#include "simd.hpp"

namespace quadrat {
namespace {

constexpr int chunk = rng::philox_most;  // tokens that are drawn for at a time

// The tokens of a chunk that begin a masked word.
QUADRAT_CLONES int find_masked(const std::uint32_t* drawn, const std::uint8_t* words, int n, std::uint32_t bar,
                               std::uint8_t* at) {
    std::uint8_t hit[chunk];
    for (int i = 0; i < n; ++i) {
        const bool success = draw_of_word(drawn[i]) < bar;
        hit[i] =
            static_cast<std::uint8_t>(static_cast<unsigned>(success) & static_cast<unsigned>(words[i] == word_begins));
    }
    int count = 0;
    for (int i = 0; i < n; ++i) {
        at[count] = static_cast<std::uint8_t>(i);
        count += hit[i];
    }
    return count;
}

// The tokens of a masked word after its first, up to the end of the row.
void mask_rest(const PhiloxMasking& how, std::uint64_t key, std::int64_t first, std::int64_t length,
               const std::uint8_t* words, std::int64_t* ids, std::int64_t* labels) {
    const bool draws = how.inside.replaced != certain;
    for (std::int64_t i = first; i < length && words[i] != word_begins; ++i) {
        if (words[i] == word_inside) {  // special tokens interrupt a word without ending it
            const std::uint32_t draw = draws ? philox_draw(how, key, i) : 0;
            labels[i] = ids[i];
            ids[i] = masked_id(how, how.inside, draw, key, i, ids[i]);
        }
    }
}

void mask_row(const PhiloxMasking& how, std::uint64_t key, std::int64_t length, const std::uint8_t* words,
              std::int64_t* ids, std::int64_t* labels) {
    std::uint32_t drawn[chunk];
    std::uint8_t masked[chunk], random[chunk];
    for (std::int64_t first = 0; first < length; first += chunk) {
        const int n = static_cast<int>(std::min<std::int64_t>(chunk, length - first));
        rng::philox_run(philox_counter(how, key, philox_word(first).block), n, drawn);
        const int count = find_masked(drawn, words + first, n, how.begins.masked, masked);
        int randomised = 0;
        for (int i = 0; i < count; ++i) {  // no branch that a processor could foresee
            const std::int64_t at = first + masked[i];
            const std::uint32_t draw = draw_of_word(drawn[masked[i]]);
            const std::int64_t id = ids[at];
            labels[at] = id;
            ids[at] = draw < how.begins.replaced ? how.mask_id : id;
            random[randomised] = masked[i];
            randomised +=
                static_cast<int>(draw >= how.begins.replaced) & static_cast<int>(draw < how.begins.randomised);
            if (at + 1 < length && words[at + 1] != word_begins) {
                mask_rest(how, key, at + 1, length, words, ids, labels);
            }
        }
        for (int i = 0; i < randomised; ++i) {
            ids[first + random[i]] = philox_token(how, key, first + random[i]);
        }
    }
}

QUADRAT_CLONES std::uint64_t sum_of(const std::int64_t* tokens, std::int64_t length) {
    std::uint64_t sum = 0;
    for (std::int64_t i = 0; i < length; ++i) {
        sum += key_of_token(tokens[i], i);
    }
    return sum;
}

}  // namespace

Status philox_mask(const PhiloxMasking& how, Span<const std::uint64_t> row_keys, const std::int64_t* start,
                   const std::int64_t* lengths, std::int64_t count, const std::uint8_t* words, std::int64_t* ids,
                   std::int64_t* labels) {
    find_fill(sizeof ignore_index)(labels, count, &ignore_index);
    for (std::int64_t i = 0; i < row_keys.size; ++i) {
        if (start[i] < 0 || start[i] > count || lengths[i] < 0 || lengths[i] > count - start[i] ||
            lengths[i] > most_positions) {
            return {Code::row_too_long, i};
        }
        mask_row(how, row_keys[i], lengths[i], words + start[i], ids + start[i], labels + start[i]);
    }
    return {};
}

Status row_keys(Span<const std::int64_t> values, Span<const std::int64_t> start, const std::int64_t* lengths,
                std::uint64_t* out) {
    for (std::int64_t i = 0; i < start.size; ++i) {
        if (start[i] < 0 || start[i] > values.size || lengths[i] < 0 || lengths[i] > values.size - start[i]) {
            return {Code::row_too_long, i};
        }
        out[i] = key_of_token(lengths[i], -1) + sum_of(values.data + start[i], lengths[i]);
    }
    return {};
}

}  // namespace quadrat
