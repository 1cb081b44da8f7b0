#include "put_tokens.hpp"

#include "bytes.hpp"
#include "simd.hpp"
#include "stream.hpp"
#include "take_tokens.hpp"

namespace quadrat {
namespace {

QUADRAT_CLONES bool rise(Span<const std::int64_t> indices) {
    unsigned falls = 0;
    for (std::int64_t i = 1; i < indices.size; ++i) {
        falls |= indices[i] <= indices[i - 1] ? 1U : 0U;
    }
    return falls == 0;
}

// The first index that is no place of the output: indices.size if there is none.
std::int64_t find_outside(Span<const std::int64_t> indices, std::int64_t size) {
    std::int64_t at = 0;
    while (at < indices.size && indices[at] >= 0 && indices[at] < size) {
        ++at;
    }
    return at;
}

constexpr std::int64_t block = 16;

// Rising places of tokens of a few bytes, where calls for short runs would cost more than the tokens.
template <std::size_t token>
inline void put_small(const char* values, Span<const std::int64_t> indices, char* out, std::int64_t size) {
    const auto at_byte = [](std::int64_t tokens) { return static_cast<std::size_t>(tokens) * token; };
    std::int64_t at = 0, written = 0;
    const auto clear_to = [&](std::int64_t end) {
        if (end - written >= block) {
            fill_bytes(out + at_byte(written), 0, at_byte(end - written));
            written = end;
        }
        for (; written < end; ++written) {
            fill_bytes(out + at_byte(written), 0, token);
        }
    };
    for (; at + block <= indices.size; at += block) {
        const std::int64_t* const number = indices.data + at;
        if (number[block - 1] - number[0] == block - 1) {  // they rise
            clear_to(number[0]);
            copy_bytes(out + at_byte(number[0]), values + at_byte(at), block * token);
            written += block;
            continue;
        }
        for (std::int64_t k = 0; k < block; ++k) {
            clear_to(number[k]);
            copy_bytes(out + at_byte(number[k]), values + at_byte(at + k), token);
            ++written;
        }
    }
    for (; at < indices.size; ++at) {
        clear_to(indices[at]);
        copy_bytes(out + at_byte(indices[at]), values + at_byte(at), token);
        ++written;
    }
    clear_to(size);
}

// Whether the tokens are of a size that put_small knows: then they are written.
bool put_if_small(const char* values, std::size_t token, Span<const std::int64_t> indices, char* out,
                  std::int64_t size) {
    switch (token) {
        case 1:
            put_small<1>(values, indices, out, size);
            return true;
        case 2:
            put_small<2>(values, indices, out, size);
            return true;
        case 4:
            put_small<4>(values, indices, out, size);
            return true;
        case 8:
            put_small<8>(values, indices, out, size);
            return true;
        default:
            return false;
    }
}

}  // namespace

Status put_tokens(const void* values, std::size_t token, Span<const std::int64_t> indices, void* out,
                  std::int64_t size) {
    if (size < 0 || indices.size < 0) {
        return {Code::bad_argument};
    }
    const bool rising = rise(indices);
    const std::int64_t last = indices.size - 1;
    if (!rising || (last >= 0 && (indices[0] < 0 || indices[last] >= size))) {
        if (const std::int64_t at = find_outside(indices, size); at <= last) {
            return {Code::out_of_range, at};
        }
    }
    const auto bytes = [token](std::int64_t tokens) { return static_cast<std::size_t>(tokens) * token; };
    const char* const source = static_cast<const char*>(values);
    char* const target = static_cast<char*>(out);
    if (rising && put_if_small(source, token, indices, target, size)) {
        return {};
    }
    const bool stream = bytes(size) >= static_cast<std::size_t>(stream_threshold);
    if (!rising) {
        fill_bytes(target, 0, bytes(size));
    }
    std::int64_t written = 0;
    for (std::int64_t at = 0; at < indices.size;) {
        const std::int64_t first = indices[at], length = end_of_run(indices, at) - at;
        if (rising) {
            fill_bytes(target + bytes(written), 0, bytes(first - written));
        }
        if (stream && rising) {
            stream_copy(target + bytes(first), source + bytes(at), bytes(length));
        } else {
            copy_bytes(target + bytes(first), source + bytes(at), bytes(length));
        }
        written = first + length;
        at += length;
    }
    if (rising) {
        fill_bytes(target + bytes(written), 0, bytes(size - written));
    }
    if (stream) {
        stream_fence();
    }
    return {};
}

}  // namespace quadrat
