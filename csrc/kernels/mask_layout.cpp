#include "mask_layout.hpp"

#include <algorithm>
#include <limits>

#include "simd.hpp"

namespace quadrat {
namespace {

struct Count {
    std::int64_t kept;
    bool plain;
};

// Bodies of loops that are compiled for several processors: see simd.hpp.
template <typename T>
inline Count count_of(const T* mask, std::int64_t width) {
    std::int64_t kept = 0;
    T bits = 0;
    for (std::int64_t i = 0; i < width; ++i) {
        kept += mask[i] != 0 ? 1 : 0;
        bits = static_cast<T>(bits | mask[i]);
    }
    return {kept, bits <= 1};
}

constexpr std::int64_t step = 16;

template <typename T>
inline Status indices_of(const T* mask, std::int64_t size, Span<std::int64_t> out) {
    std::int64_t place = 0, at = 0;
    // A step of all or of none is written, or leapt over, at once. In others each number is written to the next place,
    // and the next one over it if the mask does not keep it.
    for (; at + step <= size && place + step <= out.size; at += step) {
        std::int64_t kept = 0;
        for (std::int64_t k = 0; k < step; ++k) {
            kept += mask[at + k] != 0 ? 1 : 0;
        }
        std::int64_t* const target = out.data + place;
        if (kept == step) {
            for (std::int64_t k = 0; k < step; ++k) {
                target[k] = at + k;
            }
            place += step;
        } else if (kept != 0) {
            std::int64_t found = 0;
            for (std::int64_t k = 0; k < step; ++k) {
                target[found] = at + k;
                found += mask[at + k] != 0 ? 1 : 0;
            }
            place += found;  // not `kept`, which another thread may have made untrue
        }
    }
    for (; at < size; ++at) {
        if (mask[at] == 0) {
            continue;
        }
        if (place == out.size) {
            return {Code::changed};
        }
        out[place++] = at;
    }
    return {place == out.size ? Code::ok : Code::changed};
}

#define QUADRAT_MASK(T)                                                                                  \
    QUADRAT_CLONES Count count(const std::T* mask, std::int64_t width) { return count_of(mask, width); } \
    QUADRAT_CLONES Status indices(const std::T* mask, std::int64_t size, Span<std::int64_t> out) {       \
        return indices_of(mask, size, out);                                                              \
    }
QUADRAT_MASK(uint8_t)
QUADRAT_MASK(uint16_t)
QUADRAT_MASK(uint32_t)
QUADRAT_MASK(uint64_t)

// Calls f(mask) with the mask as integers of its size.
template <typename F>
Status with_item(const void* mask, std::size_t item, F f) {
    switch (item) {
        case 1:
            return f(static_cast<const std::uint8_t*>(mask));
        case 2:
            return f(static_cast<const std::uint16_t*>(mask));
        case 4:
            return f(static_cast<const std::uint32_t*>(mask));
        case 8:
            return f(static_cast<const std::uint64_t*>(mask));
        default:
            return {Code::bad_argument};
    }
}

}  // namespace

Status mask_layout(const void* mask, std::size_t item, std::int64_t width, Span<std::int32_t> cu_seqlens,
                   std::int32_t* lengths, MaskFacts* facts) {
    if (width < 0 || cu_seqlens.size < 1) {
        return {Code::bad_argument};
    }
    return with_item(mask, item, [&](const auto* first) -> Status {
        *facts = {};
        cu_seqlens[0] = 0;
        for (std::int64_t row = 0; row + 1 < cu_seqlens.size; ++row) {
            const Count found = count(first + row * width, width);
            facts->total += found.kept;
            facts->longest = std::max(facts->longest, found.kept);
            facts->plain = facts->plain && found.plain;
            if (facts->total > std::numeric_limits<std::int32_t>::max()) {
                return {Code::out_of_range, row};
            }
            lengths[row] = static_cast<std::int32_t>(found.kept);
            cu_seqlens[row + 1] = static_cast<std::int32_t>(facts->total);
        }
        return {};
    });
}

Status mask_indices(const void* mask, std::size_t item, std::int64_t size, Span<std::int64_t> out) {
    if (size < 0 || out.size < 0) {
        return {Code::bad_argument};
    }
    return with_item(mask, item, [&](const auto* first) { return indices(first, size, out); });
}

}  // namespace quadrat
