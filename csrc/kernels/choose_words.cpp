#include "choose_words.hpp"

#include <algorithm>
#include <cmath>

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

}  // namespace

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
    std::int64_t found = 0;
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
            positions[found] = start + at;  // `found` is at most the token's own number: there is room
            found += masked && (pieces[ids[start + at]] & piece_kept) == 0 ? 1 : 0;
        }
    }
    *chosen = found;
    return {};
}

}  // namespace quadrat
