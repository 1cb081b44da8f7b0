#include "order_rows.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "prefetch.hpp"
#include "rng/philox.hpp"

namespace quadrat {
namespace {

// What is sorted: row numbers with bits of their keys above them, so that a key is looked up once and not in each pass.
constexpr int row_bits = 40, key_bits = 24;
constexpr std::uint64_t row_mask = (std::uint64_t{1} << row_bits) - 1, key_mask = (std::uint64_t{1} << key_bits) - 1;
constexpr std::uint64_t sign = std::uint64_t{1} << 63;  // flipped, so that negative keys are below the others

// One stable pass by the bits from `shift` on.
template <int bits>
void pass(Span<const std::int64_t> from, int shift, std::int64_t* to, Watch& watch) {
    constexpr std::uint64_t size = std::uint64_t{1} << bits;
    std::int64_t place[size + 1] = {};
    const auto digit = [shift](std::int64_t word) { return static_cast<std::uint64_t>(word) >> shift & (size - 1); };
    watch.stretches(from.size, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            ++place[digit(from[i]) + 1];
        }
    });
    for (std::uint64_t i = 0; i < size; ++i) {
        place[i + 1] += place[i];
    }
    watch.stretches(from.size, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            to[place[digit(from[i])]++] = from[i];
        }
    });
}

template <int bits>
void sort_by_digits(const std::int64_t* keys, Span<std::int64_t> rows, std::int64_t* spare, Watch& watch) {
    std::uint64_t any = 0, all = ~std::uint64_t{0}, differ = 1;  // bits of keys
    for (int above = 0; above < 64 && differ >> above != 0; above += key_bits) {
        watch.stretches(rows.size, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                prefetch(keys + rows[std::min(i + 32, rows.size - 1)]);
                const std::uint64_t key = static_cast<std::uint64_t>(keys[rows[i]]) ^ sign;
                any |= key;
                all &= key;
                rows[i] |= static_cast<std::int64_t>((~key >> above & key_mask) << row_bits);
            }
        });
        differ = any & ~all;
        std::int64_t *from = rows.data, *to = spare;
        for (int shift = 0; shift < key_bits; shift += bits) {
            if ((differ >> above >> shift & ((1U << bits) - 1)) != 0) {
                pass<bits>({from, rows.size}, row_bits + shift, to, watch);
                std::swap(from, to);
            }
        }
        for (std::int64_t i = 0; i < rows.size; ++i) {
            rows[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(from[i]) & row_mask);
        }
    }
}

constexpr std::uint32_t orders = 0x6F726472;  // the last word of the counter: what masks draw has a row key there
constexpr int block = 64;                     // draws of 64 bits from one call of philox_run
constexpr std::uint32_t block_counters = 32;

// Draw i of a block: words 0 and 1 of counter i, or, for i >= 32, words 2 and 3 of counter i - 32.
std::uint64_t below(const std::uint32_t* words, std::int64_t i, std::uint64_t end) {
    const std::int64_t counter = i % 32;
    const std::uint32_t* const low = words + counter / 8 * 32 + counter % 8 + i / 32 * 16;
    return (low[8] * end + (low[0] * end >> 32)) >> 32;
}

}  // namespace

void sort_rows(const std::int64_t* keys, Span<std::int64_t> rows, std::int64_t* spare, Watch& watch) {
    if (rows.size < 4096) {
        sort_by_digits<8>(keys, rows, spare, watch);
    } else {
        sort_by_digits<12>(keys, rows, spare, watch);
    }
}

Status philox_order(std::uint64_t seed, std::uint32_t epoch, std::uint32_t stream, Span<std::int64_t> out,
                    Watch& watch) {
    if (out.size >> 32 != 0) {
        return {Code::bad_argument};
    }
    std::iota(out.begin(), out.end(), std::int64_t{0});
    rng::Philox at{{0, epoch, stream, orders},
                   {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}};
    std::uint32_t words[rng::philox_most];
    std::int64_t other[block];
    for (std::int64_t first = 0; first < out.size; first += block) {
        const int count = static_cast<int>(std::min<std::int64_t>(block, out.size - first));
        rng::philox_run(at, rng::philox_most, words);
        at.counter[0] += block_counters;
        for (int i = 0; i < count; ++i) {
            const std::int64_t row = first + i;
            other[i] = row + static_cast<std::int64_t>(below(words, i, static_cast<std::uint64_t>(out.size - row)));
            prefetch<true>(out.data + other[i]);
        }
        for (int i = 0; i < count; ++i) {
            std::swap(out[first + i], out[other[i]]);
        }
        watch.after(count);
    }
    return {};
}

}  // namespace quadrat
