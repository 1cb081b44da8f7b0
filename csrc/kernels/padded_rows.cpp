#include "padded_rows.hpp"

#include <algorithm>
#include <cstring>

#include "bytes.hpp"
#include "convert.hpp"
#include "copy_rows.hpp"
#include "simd.hpp"

namespace quadrat {
namespace {

// One row of a mask: which of these tokens are of this document.
#define QUADRAT_SEE(T)                                                                                    \
    QUADRAT_CLONES void see_##T(const std::int64_t* documents, std::int64_t count, std::int64_t document, \
                                const std::uint64_t* values, void* out) {                                 \
        std::T hidden, seen;                                                                              \
        std::memcpy(&hidden, values, sizeof hidden);                                                      \
        std::memcpy(&seen, values + 1, sizeof seen);                                                      \
        std::T* const target = static_cast<std::T*>(out);                                                 \
        for (std::int64_t i = 0; i < count; ++i) {                                                        \
            target[i] = documents[i] == document ? seen : hidden;                                         \
        }                                                                                                 \
    }

QUADRAT_SEE(uint8_t)
QUADRAT_SEE(uint16_t)
QUADRAT_SEE(uint32_t)
QUADRAT_SEE(uint64_t)

// Calls write(row, gap) for each row and for how many tokens it is shorter than the width.
template <typename Write>
Status for_gaps(Span<const std::int64_t> lengths, std::int64_t width, Write write) {
    if (width < 0) {
        return {Code::bad_argument};
    }
    for (std::int64_t i = 0; i < lengths.size; ++i) {
        const std::int64_t gap = width - lengths[i];
        if (lengths[i] < 0 || gap < 0) {
            return {Code::row_too_long, i};
        }
        write(i, gap);
    }
    return {};
}

}  // namespace

Status attention_mask(Span<const std::int64_t> lengths, std::int64_t width, Side side, Kind kind, void* out) {
    const std::size_t item = item_size(kind);
    const Fill fill = find_fill(item);
    const std::uint64_t zero = 0;
    const std::uint8_t yes = 1;
    std::uint64_t one = 0;
    find_convert(Kind::bool_, kind)(&yes, &one, 1);
    return for_gaps(lengths, width, [&](std::int64_t i, std::int64_t gap) {
        char* const row = static_cast<char*>(out) + bytes_of(i * width, item);
        const std::int64_t before = side == Side::left ? gap : 0;
        fill(row, before, &zero);
        fill(row + bytes_of(before, item), lengths[i], &one);
        fill(row + bytes_of(before + lengths[i], item), gap - before, &zero);
    });
}

Status fill_gaps(Span<const std::int64_t> lengths, std::int64_t width, std::int64_t inner, Side side, Kind kind,
                 const void* value, void* out) {
    const std::size_t item = item_size(kind);
    const Fill fill = find_fill(item);
    return for_gaps(lengths, width, [&](std::int64_t i, std::int64_t gap) {
        const std::int64_t first = i * width + (side == Side::right ? lengths[i] : 0);
        fill(static_cast<char*>(out) + bytes_of(first * inner, item), gap * inner, value);
    });
}

Status count_on(Span<const std::int64_t> lengths, std::int64_t width, Side side, std::int64_t* out) {
    return for_gaps(lengths, width, [&](std::int64_t i, std::int64_t gap) {
        const bool after = side == Side::right;
        std::int64_t* const first = out + i * width + (after ? lengths[i] : 0);
        // Unsigned, because the last number may be the largest there is.
        std::uint64_t next = after && lengths[i] > 0 ? static_cast<std::uint64_t>(first[-1]) + 1 : 0;
        std::generate_n(first, gap, [&next] { return static_cast<std::int64_t>(next++); });
    });
}

Status document_mask(const std::int64_t* documents, std::int64_t rows, std::int64_t width, bool causal,
                     std::size_t item, const std::uint64_t* values, void* out) {
    if (rows < 0 || width < 0) {
        return {Code::bad_argument};
    }
    const Fill fill = find_fill(item);
    const auto see = item == 1 ? see_uint8_t : item == 2 ? see_uint16_t : item == 4 ? see_uint32_t : see_uint64_t;
    for (char* row = static_cast<char*>(out); rows > 0; --rows, documents += width) {
        for (std::int64_t i = 0; i < width; ++i, row += bytes_of(width, item)) {
            const std::int64_t near = documents[i] == 0 ? 0 : causal ? i + 1 : width;
            see(documents, near, documents[i], values, row);
            fill(row + bytes_of(near, item), width - near, values);
        }
    }
    return {};
}

Status unpad(const void* padded, std::int64_t width, Side side, Span<const std::int64_t> offsets, std::size_t token,
             void* out, std::int64_t out_size) {
    if (width < 0 || out_size < 0) {
        return {Code::bad_argument};
    }
    LongestRow longest;
    if (const Status status = check_offsets(offsets, out_size, &longest); !status) {
        return status;
    }
    if (longest.length > width) {
        return {Code::row_too_long, longest.row};
    }
    const char* const in = static_cast<const char*>(padded);
    char* const target = static_cast<char*>(out);
    const std::int64_t rows = offsets.size - 1;
    const std::int64_t first = rows == 0 ? out_size : offsets[0];
    const std::int64_t last = rows == 0 ? out_size : offsets[rows];
    fill_bytes(target, 0, bytes_of(first, token));
    // Where the batch has no padding, the rows are one.
    const bool whole = rows > 0 && last - first == rows * width;
    const Copier copy(bytes_of(last - first, token));
    for (std::int64_t i = 0; i < rows; i += whole ? rows : 1) {
        const std::int64_t length = whole ? last - first : offsets[i + 1] - offsets[i];
        const char* const source = in + bytes_of(whole ? 0 : padded_start(i, length, width, side), token);
        copy(target + bytes_of(offsets[i], token), source, bytes_of(length, token));
    }
    fill_bytes(target + bytes_of(last, token), 0, bytes_of(out_size - last, token));
    return {};
}

}  // namespace quadrat
