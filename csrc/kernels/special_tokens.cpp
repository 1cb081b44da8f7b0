#include "special_tokens.hpp"

#include "bytes.hpp"
#include "simd.hpp"

namespace quadrat {

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

}  // namespace quadrat
