// The dimensions of rows after the first.
#pragma once

#include <cstdint>
#include <vector>

namespace quadrat {

// Those of one token.
using Trailing = std::vector<std::int64_t>;

// How many elements a token of these dimensions has; -1 for more than any memory holds.
inline std::int64_t elements_of(const Trailing& dimensions) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : dimensions) {
        constexpr std::int64_t most = std::int64_t{1} << 56;
        if (extent < 0 || (extent > 0 && elements > most / extent)) {
            return -1;
        }
        elements *= extent;
    }
    return elements;
}

}  // namespace quadrat
