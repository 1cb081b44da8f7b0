#include "padded_rows.hpp"

#include <algorithm>
#include <cstring>

#include "bytes.hpp"
#include "convert.hpp"
#include "copy_rows.hpp"

namespace quadrat {
namespace {

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
    const Copier copy(bytes_of(last - first, token));
    for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t length = offsets[i + 1] - offsets[i];
        const char* const source = in + bytes_of(padded_start(i, length, width, side), token);
        copy(target + bytes_of(offsets[i], token), source, bytes_of(length, token));
    }
    fill_bytes(target + bytes_of(last, token), 0, bytes_of(out_size - last, token));
    return {};
}

}  // namespace quadrat
