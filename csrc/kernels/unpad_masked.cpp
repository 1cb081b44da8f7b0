#include "unpad_masked.hpp"

#include <cstring>

#include "bytes.hpp"
#include "simd.hpp"

namespace quadrat {
namespace {

constexpr std::int64_t word = 8;

QUADRAT_CLONES std::int64_t count(const std::uint8_t* mask, std::int64_t width) {
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < width; ++i) {
        kept += mask[i] != 0 ? 1 : 0;
    }
    return kept;
}

// Where the first byte is that is 0, or is not: at `width` if there is none.
template <bool zero>
std::int64_t find(const std::uint8_t* mask, std::int64_t at, std::int64_t width) {
    constexpr std::uint64_t low = 0x0101010101010101, high = 0x8080808080808080;
    for (; at + word <= width; at += word) {
        std::uint64_t bytes;
        std::memcpy(&bytes, mask + at, sizeof bytes);
        if (zero ? ((bytes - low) & ~bytes & high) != 0 : bytes != 0) {
            break;
        }
    }
    while (at < width && (mask[at] == 0) != zero) {
        ++at;
    }
    return at;
}

}  // namespace

Status count_masked(const std::uint8_t* mask, std::int64_t width, Span<std::int64_t> offsets) {
    if (width < 0 || offsets.size < 1) {
        return {Code::bad_argument};
    }
    offsets[0] = 0;
    for (std::int64_t row = 0; row + 1 < offsets.size; ++row) {
        offsets[row + 1] = offsets[row] + count(mask + row * width, width);
    }
    return {};
}

Status unpad_masked(const void* padded, const std::uint8_t* mask, std::int64_t width, std::size_t token,
                    Span<const std::int64_t> offsets, void* out) {
    if (width < 0 || offsets.size < 1) {
        return {Code::bad_argument};
    }
    const auto bytes = [token](std::int64_t tokens) { return static_cast<std::size_t>(tokens) * token; };
    const char* const source = static_cast<const char*>(padded);
    char* const target = static_cast<char*>(out);
    for (std::int64_t row = 0; row + 1 < offsets.size; ++row) {
        const std::uint8_t* const kept = mask + row * width;
        std::int64_t place = offsets[row];
        for (std::int64_t at = 0; (at = find<false>(kept, at, width)) < width;) {
            const std::int64_t end = find<true>(kept, at, width);
            if (place + (end - at) > offsets[row + 1]) {
                return {Code::changed, row};
            }
            copy_bytes(target + bytes(place), source + bytes(row * width + at), bytes(end - at));
            place += end - at;
            at = end;
        }
        if (place != offsets[row + 1]) {
            return {Code::changed, row};
        }
    }
    return {};
}

}  // namespace quadrat
