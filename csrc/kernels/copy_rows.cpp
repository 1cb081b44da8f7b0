#include "copy_rows.hpp"

#include <algorithm>
#include <cstring>

#include "bytes.hpp"
#include "convert.hpp"
#include "prefetch.hpp"

namespace quadrat {
namespace {

// Strided or misaligned rows are gathered into a small buffer first, so that only contiguous, aligned runs convert.
// Plain rows that convert into a streamed output do so by way of a buffer too, which then is streamed.
bool copy_blocks(const Row& row, bool plain, Convert convert, std::size_t out_item, char* out) {
    constexpr std::int64_t block = 256;
    alignas(64) char buffer[block * 8];
    const std::size_t item = item_size(row.kind);
    for (std::int64_t done = 0; done < row.length; done += block) {
        const std::int64_t count = std::min(block, row.length - done);
        const char* const source = static_cast<const char*>(row.data) + done * row.stride;
        char* const target = out + bytes_of(done, out_item);
        for (std::int64_t k = 0; k < count && !plain; ++k) {
            std::memcpy(buffer + bytes_of(k, item), source + k * row.stride, item);
        }
        if (!convert(plain ? source : buffer, plain ? buffer : target, count)) {
            return false;
        }
        if (plain) {
            stream_copy(target, buffer, bytes_of(count, out_item));
        }
    }
    return true;
}

}  // namespace

Status check_offsets(Span<const std::int64_t> offsets, std::int64_t size, LongestRow* longest) {
    if (offsets.size < 1) {
        return {Code::bad_argument};
    }
    std::int64_t begin = offsets[0];
    if (begin < 0 || begin > size) {
        return {Code::bad_start, 0};
    }
    LongestRow candidate;
    for (std::int64_t row = 0; row + 1 < offsets.size; ++row) {
        const std::int64_t end = offsets[row + 1];
        if (end < begin || end > size) {
            return {Code::bad_start, row};
        }
        if (end - begin > candidate.length) {
            candidate = {row, end - begin};
        }
        begin = end;
    }
    *longest = candidate;
    return {};
}

Status copy_rows(Span<const Row> rows, Span<const std::int64_t> start, Kind out_kind, void* out,
                 std::int64_t out_size) {
    const std::size_t out_item = item_size(out_kind);
    const Copier copy(bytes_of(out_size, out_item));
    for (std::int64_t i = 0; i < rows.size; ++i) {
        const Row& row = rows[i];
        if (row.length == 0) {
            continue;
        }
        if (start[i] < 0 || start[i] > out_size) {
            return {Code::bad_start, i};
        }
        if (row.length < 0 || row.length > out_size - start[i]) {
            return {Code::row_too_long, i};
        }
        const Convert convert = find_convert(row.kind, out_kind);
        if (convert == nullptr) {
            return {Code::no_conversion, i};
        }
        if (i + 1 < rows.size && start[i + 1] >= 0 && start[i + 1] < out_size) {
            // A streamed output is not to be fetched at all.
            const char* const next = static_cast<char*>(out) + bytes_of(start[i + 1], out_item);
            const Row& after = rows[i + 1];
            prefetch_copy(after.data, after.length * static_cast<std::int64_t>(item_size(after.kind)),
                          copy.streams() ? nullptr : next, after.length * static_cast<std::int64_t>(out_item));
        }
        char* const target = static_cast<char*>(out) + bytes_of(start[i], out_item);
        const std::size_t item = item_size(row.kind);
        const bool plain = (row.stride == static_cast<std::int64_t>(item) || row.length == 1) &&
                           reinterpret_cast<std::uintptr_t>(row.data) % item == 0;
        bool fits = true;
        if (plain && !copy.streams()) {
            fits = convert(row.data, target, row.length);
        } else if (plain && row.kind == out_kind) {
            copy(target, row.data, bytes_of(row.length, item));
        } else {
            fits = copy_blocks(row, plain, convert, out_item, target);
        }
        if (!fits) {
            return {Code::out_of_range, i};
        }
    }
    return {};
}

}  // namespace quadrat
