#include "take_tokens.hpp"

#include <algorithm>

#include "bytes.hpp"
#include "read_once.hpp"
#include "simd.hpp"
#include "stream.hpp"

namespace quadrat {

QUADRAT_CLONES std::int64_t end_of_run(Span<const std::int64_t> indices, std::int64_t at, std::int64_t first) {
    constexpr std::int64_t step = 16;
    // Unsigned: numbers that are no token's may be as large as they like.
    const auto* const number = reinterpret_cast<const std::uint64_t*>(indices.data);
    const std::uint64_t before = static_cast<std::uint64_t>(first) - static_cast<std::uint64_t>(at);
    std::int64_t end = at + 1;
    for (; end + step <= indices.size; end += step) {
        std::uint64_t other = 0;
        for (std::int64_t k = end; k < end + step; ++k) {
            other |= number[k] ^ (before + static_cast<std::uint64_t>(k));
        }
        if (other != 0) {
            break;
        }
    }
    while (end < indices.size && number[end] == before + static_cast<std::uint64_t>(end)) {
        ++end;
    }
    return end;
}

namespace {

constexpr std::int64_t block = 16;

// Tokens of a few bytes, where calls for short runs would cost more than the tokens.
template <std::size_t token>
inline Status take_small(const char* values, std::int64_t size, Span<const std::int64_t> indices, char* out) {
    const auto at_byte = [](std::int64_t tokens) { return static_cast<std::size_t>(tokens) * token; };
    for (std::int64_t at = 0; at < indices.size; at += block) {
        const std::int64_t count = std::min(block, indices.size - at);
        std::int64_t number[block] = {};
        read_once(indices.data + at, count, number);
        if (count == block && number[0] >= 0 && number[0] <= size - block) {
            std::int64_t other = 0;
            for (std::int64_t k = 0; k < block; ++k) {
                other |= number[k] ^ (number[0] + k);
            }
            if (other == 0) {
                copy_bytes(out + at_byte(at), values + at_byte(number[0]), block * token);
                continue;
            }
        }
        for (std::int64_t k = 0; k < count; ++k) {
            if (number[k] < 0 || number[k] >= size) {
                return {Code::out_of_range, at + k};
            }
            copy_bytes(out + at_byte(at + k), values + at_byte(number[k]), token);
        }
    }
    return {};
}

QUADRAT_CLONES Status take_1(const char* values, std::int64_t size, Span<const std::int64_t> indices, char* out) {
    return take_small<1>(values, size, indices, out);
}
QUADRAT_CLONES Status take_2(const char* values, std::int64_t size, Span<const std::int64_t> indices, char* out) {
    return take_small<2>(values, size, indices, out);
}
QUADRAT_CLONES Status take_4(const char* values, std::int64_t size, Span<const std::int64_t> indices, char* out) {
    return take_small<4>(values, size, indices, out);
}
QUADRAT_CLONES Status take_8(const char* values, std::int64_t size, Span<const std::int64_t> indices, char* out) {
    return take_small<8>(values, size, indices, out);
}

}  // namespace

Status take_tokens(const void* values, std::int64_t size, std::size_t token, Span<const std::int64_t> indices,
                   void* out) {
    if (size < 0 || indices.size < 0) {
        return {Code::bad_argument};
    }
    const auto bytes = [token](std::int64_t tokens) { return static_cast<std::size_t>(tokens) * token; };
    const char* const source = static_cast<const char*>(values);
    char* const target = static_cast<char*>(out);
    switch (token) {
        case 1:
            return take_1(source, size, indices, target);
        case 2:
            return take_2(source, size, indices, target);
        case 4:
            return take_4(source, size, indices, target);
        case 8:
            return take_8(source, size, indices, target);
        default:
            break;
    }
    const bool stream = bytes(indices.size) >= static_cast<std::size_t>(stream_threshold);
    for (std::int64_t at = 0; at < indices.size;) {
        const std::int64_t first = read_once(indices.data + at);
        if (first < 0 || first >= size) {
            return {Code::out_of_range, at};
        }
        const std::int64_t length = end_of_run(indices, at, first) - at;
        if (length > size - first) {
            return {Code::out_of_range, at + size - first};
        }
        if (stream) {
            stream_copy(target + bytes(at), source + bytes(first), bytes(length));
        } else {
            copy_bytes(target + bytes(at), source + bytes(first), bytes(length));
        }
        at += length;
    }
    if (stream) {
        stream_fence();
    }
    return {};
}

}  // namespace quadrat
