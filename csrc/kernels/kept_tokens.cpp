#include "kept_tokens.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
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

// Calls move(at, first, length) for one run after the other: indices[at] is `first`. Reports the place of an index that
// is not below `size`.
template <typename Move>
Status for_runs(Span<const std::int64_t> indices, std::int64_t size, Move move) {
    for (std::int64_t at = 0; at < indices.size;) {
        const std::int64_t first = read_once(indices.data + at);
        if (first < 0 || first >= size) {
            return {Code::out_of_range, at};
        }
        const std::int64_t length = end_of_run(indices, at, first) - at;
        if (length > size - first) {
            return {Code::out_of_range, at + size - first};
        }
        move(at, first, length);
        at += length;
    }
    return {};
}

struct Count {
    std::int64_t kept;
    bool plain;
};

template <typename T>
Count count(const T* mask, std::int64_t width) {
    std::int64_t kept = 0;
    T bits = 0;
    for (std::int64_t i = 0; i < width; ++i) {
        kept += mask[i] != 0 ? 1 : 0;
        bits = static_cast<T>(bits | mask[i]);
    }
    return {kept, bits <= 1};
}

template <typename F>
Status with_mask(const void* mask, std::size_t item, F f) {
    return with_item(
        item, [&](auto number) { return f(static_cast<const decltype(number)*>(mask)); },
        [] { return Status{Code::bad_argument}; });
}

// Where the first byte is that is 0, or is not: at `width` if there is none.
template <bool zero>
std::int64_t find(const std::uint8_t* mask, std::int64_t at, std::int64_t width) {
    constexpr std::int64_t word = 8;
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

Status take_tokens(const void* values, std::int64_t size, std::size_t token, Span<const std::int64_t> indices,
                   void* out) {
    if (size < 0 || indices.size < 0) {
        return {Code::bad_argument};
    }
    const Copier copy(bytes_of(indices.size, token));
    return for_runs(indices, size, [&](std::int64_t at, std::int64_t first, std::int64_t length) {
        copy(static_cast<char*>(out) + bytes_of(at, token), static_cast<const char*>(values) + bytes_of(first, token),
             bytes_of(length, token));
    });
}

Status put_tokens(const void* values, std::size_t token, Span<const std::int64_t> indices, void* out,
                  std::int64_t size) {
    if (size < 0 || indices.size < 0) {
        return {Code::bad_argument};
    }
    fill_bytes(out, 0, bytes_of(size, token));
    const Copier copy(bytes_of(size, token));
    return for_runs(indices, size, [&](std::int64_t at, std::int64_t first, std::int64_t length) {
        copy(static_cast<char*>(out) + bytes_of(first, token), static_cast<const char*>(values) + bytes_of(at, token),
             bytes_of(length, token));
    });
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
            const Count counted = count(first + row * width, width);
            facts->total += counted.kept;
            facts->longest = std::max(facts->longest, counted.kept);
            facts->plain = facts->plain && counted.plain;
            if (facts->total > std::numeric_limits<std::int32_t>::max()) {
                return {Code::out_of_range, row};
            }
            lengths[row] = static_cast<std::int32_t>(counted.kept);
            cu_seqlens[row + 1] = static_cast<std::int32_t>(facts->total);
        }
        return {};
    });
}

Status mask_indices(const void* mask, std::size_t item, std::int64_t size, Span<std::int64_t> out) {
    if (size < 0 || out.size < 0) {
        return {Code::bad_argument};
    }
    return with_mask(mask, item, [&](const auto* first) -> Status {
        std::int64_t place = 0, at = 0;
        for (; at < size && place < out.size; ++at) {
            out[place] = at;  // the next one is written over it if the mask does not keep it
            place += first[at] != 0 ? 1 : 0;
        }
        const bool ends =
            place == out.size && std::all_of(first + at, first + size, [](auto number) { return number == 0; });
        return {ends ? Code::ok : Code::changed};
    });
}

Status count_masked(const std::uint8_t* mask, std::int64_t width, Span<std::int64_t> offsets) {
    if (width < 0 || offsets.size < 1) {
        return {Code::bad_argument};
    }
    offsets[0] = 0;
    for (std::int64_t row = 0; row + 1 < offsets.size; ++row) {
        offsets[row + 1] = offsets[row] + count(mask + row * width, width).kept;
    }
    return {};
}

Status unpad_masked(const void* padded, const std::uint8_t* mask, std::int64_t width, std::size_t token,
                    Span<const std::int64_t> offsets, void* out) {
    if (width < 0 || offsets.size < 1) {
        return {Code::bad_argument};
    }
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
            copy_bytes(target + bytes_of(place, token), source + bytes_of(row * width + at, token),
                       bytes_of(end - at, token));
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
