#include "put_tokens.hpp"

#include <algorithm>
#include <iterator>

#include "bytes.hpp"
#include "read_once.hpp"
#include "simd.hpp"
#include "stream.hpp"
#include "take_tokens.hpp"

namespace quadrat {
namespace {

constexpr std::int64_t block = 16;

// Tokens of a few bytes, where calls for short runs would cost more than the tokens. False where the places do not
// rise, or one is outside.
template <std::size_t token>
inline bool put_small(const char* values, Span<const std::int64_t> indices, char* out, std::int64_t size) {
    const auto at_byte = [](std::int64_t tokens) { return static_cast<std::size_t>(tokens) * token; };
    std::int64_t written = 0;
    const auto clear_to = [&](std::int64_t end) {
        if (end - written >= block) {
            fill_bytes(out + at_byte(written), 0, at_byte(end - written));
            written = end;
        }
        for (; written < end; ++written) {
            fill_bytes(out + at_byte(written), 0, token);
        }
    };
    for (std::int64_t at = 0; at < indices.size; at += block) {
        const std::int64_t count = std::min(block, indices.size - at);
        std::int64_t number[block] = {};
        read_once(indices.data + at, count, number);
        unsigned falls = number[0] < written || number[count - 1] >= size ? 1 : 0;
        for (std::int64_t k = 1; k < count; ++k) {
            falls |= number[k] <= number[k - 1] ? 1U : 0U;
        }
        if (falls != 0) {
            return false;
        }
        if (count == block && number[block - 1] - number[0] == block - 1) {
            clear_to(number[0]);
            copy_bytes(out + at_byte(number[0]), values + at_byte(at), block * token);
            written += block;
            continue;
        }
        for (std::int64_t k = 0; k < count; ++k) {
            clear_to(number[k]);
            copy_bytes(out + at_byte(number[k]), values + at_byte(at + k), token);
            ++written;
        }
    }
    clear_to(size);
    return true;
}

#define QUADRAT_PUT(token)                                                                           \
    QUADRAT_CLONES bool put_##token(const char* values, Span<const std::int64_t> indices, char* out, \
                                    std::int64_t size) {                                             \
        return put_small<token>(values, indices, out, size);                                         \
    }
QUADRAT_PUT(1)
QUADRAT_PUT(2)
QUADRAT_PUT(4)
QUADRAT_PUT(8)

constexpr decltype(&put_1) small_puts[] = {nullptr, put_1, put_2, nullptr, put_4, nullptr, nullptr, nullptr, put_8};

// The same for tokens of any size, a run at a time.
bool put_runs(const char* values, std::size_t token, Span<const std::int64_t> indices, char* out, std::int64_t size) {
    const auto bytes = [token](std::int64_t tokens) { return static_cast<std::size_t>(tokens) * token; };
    const bool stream = bytes(size) >= static_cast<std::size_t>(stream_threshold);
    std::int64_t written = 0;
    for (std::int64_t at = 0; at < indices.size;) {
        const std::int64_t first = read_once(indices.data + at), length = end_of_run(indices, at, first) - at;
        if (first < written || first >= size || length > size - first) {
            return false;
        }
        fill_bytes(out + bytes(written), 0, bytes(first - written));
        if (stream) {
            stream_copy(out + bytes(first), values + bytes(at), bytes(length));
        } else {
            copy_bytes(out + bytes(first), values + bytes(at), bytes(length));
        }
        written = first + length;
        at += length;
    }
    fill_bytes(out + bytes(written), 0, bytes(size - written));
    if (stream) {
        stream_fence();
    }
    return true;
}

}  // namespace

Status put_tokens(const void* values, std::size_t token, Span<const std::int64_t> indices, void* out,
                  std::int64_t size) {
    if (size < 0 || indices.size < 0) {
        return {Code::bad_argument};
    }
    const char* const source = static_cast<const char*>(values);
    char* const target = static_cast<char*>(out);
    const bool small = token < std::size(small_puts) && small_puts[token] != nullptr;
    if (small ? small_puts[token](source, indices, target, size) : put_runs(source, token, indices, target, size)) {
        return {};
    }
    const auto bytes = [token](std::int64_t tokens) { return static_cast<std::size_t>(tokens) * token; };
    fill_bytes(target, 0, bytes(size));
    for (std::int64_t at = 0; at < indices.size; ++at) {
        const std::int64_t place = read_once(indices.data + at);
        if (place < 0 || place >= size) {
            return {Code::out_of_range, at};
        }
        copy_bytes(target + bytes(place), source + bytes(at), token);
    }
    return {};
}

}  // namespace quadrat
