#include "special_tokens.hpp"

namespace quadrat {

void special_tokens(const std::int64_t* ids, std::int64_t count, Span<const std::uint64_t> set, std::uint8_t* out) {
    const auto most = static_cast<std::uint64_t>(set.size) * 64;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto id = static_cast<std::uint64_t>(ids[i]);
        out[i] = id < most ? static_cast<std::uint8_t>(set.data[id / 64] >> (id % 64) & 1U) : std::uint8_t{0};
    }
}

}  // namespace quadrat
