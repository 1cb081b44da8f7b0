#include "take_tokens.hpp"

#include <algorithm>
#include <iterator>

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

#define QUADRAT_TAKE(token)                                                                                     \
    QUADRAT_CLONES Status take_##token(const char* values, std::int64_t size, Span<const std::int64_t> indices, \
                                       char* out) {                                                             \
        return take_small<token>(values, size, indices, out);                                                   \
    }
QUADRAT_TAKE(1)
QUADRAT_TAKE(2)
QUADRAT_TAKE(4)
QUADRAT_TAKE(8)

constexpr decltype(&take_1) small_takes[] = {nullptr, take_1,  take_2,  nullptr, take_4,
                                             nullptr, nullptr, nullptr, take_8};

}  // namespace

Status take_tokens(const void* values, std::int64_t size, std::size_t token, Span<const std::int64_t> indices,
                   void* out) {
    if (size < 0 || indices.size < 0) {
        return {Code::bad_argument};
    }
    const auto bytes = [token](std::int64_t tokens) { return static_cast<std::size_t>(tokens) * token; };
    const char* const source = static_cast<const char*>(values);
    char* const target = static_cast<char*>(out);
    if (token < std::size(small_takes) && small_takes[token] != nullptr) {
        return small_takes[token](source, size, indices, target);
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
