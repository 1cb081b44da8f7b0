#include "kept_tokens.hpp"

#include <algorithm>
#include <atomic>
#include <limits>

#include "bytes.hpp"
#include "simd.hpp"

namespace quadrat {
namespace {

constexpr std::int64_t block = 16;  // tokens that are looked at together

// Another thread may change the numbers. The fence keeps the compiler from reading one a second time.
inline std::int64_t read_once(const std::int64_t* from) {
    const std::int64_t number = *from;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return number;
}

// The end of the run of numbers, each one more than the last, that begins with `first` at `at`.
QUADRAT_CLONES std::int64_t end_of_run(Span<const std::int64_t> indices, std::int64_t at, std::int64_t first) {
    // Unsigned: numbers of no token may be as large as they like.
    const auto* const number = reinterpret_cast<const std::uint64_t*>(indices.data);
    const std::uint64_t before = static_cast<std::uint64_t>(first) - static_cast<std::uint64_t>(at);
    std::int64_t end = at + 1;
    for (; end + block <= indices.size; end += block) {
        std::uint64_t other = 0;
        for (std::int64_t k = end; k < end + block; ++k) {
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

// False where the places do not rise, or one is outside.
bool put_runs(const char* values, std::size_t token, Span<const std::int64_t> indices, char* out, std::int64_t size) {
    const Copier copy(bytes_of(size, token));
    std::int64_t written = 0;
    for (std::int64_t at = 0; at < indices.size;) {
        const std::int64_t first = read_once(indices.data + at), length = end_of_run(indices, at, first) - at;
        if (first < written || first >= size || length > size - first) {
            return false;
        }
        fill_bytes(out + bytes_of(written, token), 0, bytes_of(first - written, token));
        copy(out + bytes_of(first, token), values + bytes_of(at, token), bytes_of(length, token));
        written = first + length;
        at += length;
    }
    fill_bytes(out + bytes_of(written, token), 0, bytes_of(size - written, token));
    return true;
}

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

template <typename T>
inline Status indices_of(const T* mask, std::int64_t size, Span<std::int64_t> out) {
    std::int64_t place = 0, at = 0;
    // A block of all or of none is written, or leapt over, at once. In others each number is written to the next place,
    // and the next one over it if the mask does not keep it.
    for (; at + block <= size && place + block <= out.size; at += block) {
        std::int64_t kept = 0;
        for (std::int64_t k = 0; k < block; ++k) {
            kept += mask[at + k] != 0 ? 1 : 0;
        }
        std::int64_t* const target = out.data + place;
        if (kept == block) {
            for (std::int64_t k = 0; k < block; ++k) {
                target[k] = at + k;
            }
            place += block;
        } else if (kept != 0) {
            std::int64_t found = 0;
            for (std::int64_t k = 0; k < block; ++k) {
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

#define QUADRAT_ITEM(T)                                                                                  \
    QUADRAT_CLONES Count count(const std::T* mask, std::int64_t width) { return count_of(mask, width); } \
    QUADRAT_CLONES Status indices(const std::T* mask, std::int64_t size, Span<std::int64_t> out) {       \
        return indices_of(mask, size, out);                                                              \
    }
QUADRAT_ITEM(uint8_t)
QUADRAT_ITEM(uint16_t)
QUADRAT_ITEM(uint32_t)
QUADRAT_ITEM(uint64_t)

template <typename F>
Status with_mask(const void* mask, std::size_t item, F f) {
    return with_item(
        item, [&](auto number) { return f(static_cast<const decltype(number)*>(mask)); },
        [] { return Status{Code::bad_argument}; });
}

}  // namespace

Status take_tokens(const void* values, std::int64_t size, std::size_t token, Span<const std::int64_t> indices,
                   void* out) {
    if (size < 0 || indices.size < 0) {
        return {Code::bad_argument};
    }
    const char* const source = static_cast<const char*>(values);
    char* const target = static_cast<char*>(out);
    const Copier copy(bytes_of(indices.size, token));
    for (std::int64_t at = 0; at < indices.size;) {
        const std::int64_t first = read_once(indices.data + at);
        if (first < 0 || first >= size) {
            return {Code::out_of_range, at};
        }
        const std::int64_t length = end_of_run(indices, at, first) - at;
        if (length > size - first) {
            return {Code::out_of_range, at + size - first};
        }
        copy(target + bytes_of(at, token), source + bytes_of(first, token), bytes_of(length, token));
        at += length;
    }
    return {};
}

Status put_tokens(const void* values, std::size_t token, Span<const std::int64_t> indices, void* out,
                  std::int64_t size) {
    if (size < 0 || indices.size < 0) {
        return {Code::bad_argument};
    }
    const char* const source = static_cast<const char*>(values);
    char* const target = static_cast<char*>(out);
    if (put_runs(source, token, indices, target, size)) {
        return {};
    }
    fill_bytes(target, 0, bytes_of(size, token));
    for (std::int64_t at = 0; at < indices.size; ++at) {
        const std::int64_t place = read_once(indices.data + at);
        if (place < 0 || place >= size) {
            return {Code::out_of_range, at};
        }
        copy_bytes(target + bytes_of(place, token), source + bytes_of(at, token), token);
    }
    return {};
}

Status mask_layout(const void* mask, std::size_t item, std::int64_t width, Span<std::int32_t> cu_seqlens,
                   std::int32_t* lengths, MaskFacts* facts) {
    if (width < 0 || cu_seqlens.size < 1) {
        return {Code::bad_argument};
    }
    return with_mask(mask, item, [&](const auto* first) -> Status {
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
    return with_mask(mask, item, [&](const auto* first) { return indices(first, size, out); });
}

}  // namespace quadrat
