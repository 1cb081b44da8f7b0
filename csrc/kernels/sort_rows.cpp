#include "sort_rows.hpp"

#include <algorithm>
#include <utility>

namespace quadrat {
namespace {

constexpr std::int64_t few_rows = 48;  // for which the places of a pass are more than there is to sort

void insert_rows(const std::int64_t* keys, Span<std::int64_t> rows) {
    for (std::int64_t i = 1; i < rows.size; ++i) {
        const std::int64_t row = rows[i], key = keys[row];
        std::int64_t at = i;
        for (; at > 0 && keys[rows[at - 1]] < key; --at) {
            rows[at] = rows[at - 1];
        }
        rows[at] = row;
    }
}

// One stable pass by the bits from `shift` on of what a key is above the least.
template <int bits>
void pass(const std::int64_t* keys, std::uint64_t least, Span<const std::int64_t> rows, int shift, std::int64_t* out) {
    constexpr std::uint64_t size = std::uint64_t{1} << bits;
    std::int64_t place[size + 1] = {};
    const auto digit = [&](std::int64_t row) {
        return size - 1 - (((static_cast<std::uint64_t>(keys[row]) - least) >> shift) & (size - 1));
    };
    for (const std::int64_t row : rows) {
        ++place[digit(row) + 1];
    }
    for (std::uint64_t i = 0; i < size; ++i) {
        place[i + 1] += place[i];
    }
    for (const std::int64_t row : rows) {
        out[place[digit(row)]++] = row;
    }
}

template <int bits>
void sort_by_digits(const std::int64_t* keys, Span<std::int64_t> rows, std::int64_t* spare) {
    std::int64_t most = keys[rows[0]], least = most;
    for (const std::int64_t row : rows) {
        most = std::max(most, keys[row]);
        least = std::min(least, keys[row]);
    }
    const auto lowest = static_cast<std::uint64_t>(least);
    const std::uint64_t range = static_cast<std::uint64_t>(most) - lowest;
    std::int64_t *from = rows.data, *to = spare;
    for (int shift = 0; shift < 64 && (range >> shift) != 0; shift += bits) {
        pass<bits>(keys, lowest, {from, rows.size}, shift, to);
        std::swap(from, to);
    }
    if (from != rows.data) {
        std::copy(from, from + rows.size, rows.data);
    }
}

}  // namespace

void sort_rows(const std::int64_t* keys, Span<std::int64_t> rows, std::int64_t* spare) {
    if (rows.size <= few_rows) {
        insert_rows(keys, rows);
    } else if (rows.size < 4096) {
        sort_by_digits<8>(keys, rows, spare);
    } else {
        sort_by_digits<12>(keys, rows, spare);
    }
}

}  // namespace quadrat
