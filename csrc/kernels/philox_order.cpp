#include "philox_order.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "prefetch.hpp"
#include "rng/philox.hpp"

namespace quadrat {
namespace {

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
            prefetch_to_write(out.data + other[i]);
        }
        for (int i = 0; i < count; ++i) {
            std::swap(out[first + i], out[other[i]]);
        }
        watch.after(count);
    }
    return {};
}

}  // namespace quadrat
