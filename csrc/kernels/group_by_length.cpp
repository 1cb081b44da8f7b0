#include "group_by_length.hpp"

#include <algorithm>
#include <utility>

namespace quadrat {
namespace {

// Sorts `count` rows by the byte of their keys at `shift`, and keeps the order of equal ones.
void sort_by_byte(const RankedRow* from, std::int64_t count, int shift, RankedRow* to) {
    std::int64_t starts[257] = {};
    for (std::int64_t i = 0; i < count; ++i) {
        ++starts[((from[i].key >> shift) & 255) + 1];
    }
    for (int byte = 1; byte < 256; ++byte) {
        starts[byte] += starts[byte - 1];
    }
    for (std::int64_t i = 0; i < count; ++i) {
        to[starts[(from[i].key >> shift) & 255]++] = from[i];
    }
}

// Sorts the rows of one megabatch, whose numbers were checked.
void sort_rows(Span<const std::int64_t> lengths, RankedRow* scratch, Span<std::int64_t> rows) {
    std::int64_t longest = lengths[rows[0]], shortest = longest;
    for (std::int64_t i = 0; i < rows.size; ++i) {
        const std::int64_t length = lengths[rows[i]];
        longest = std::max(longest, length);
        shortest = std::min(shortest, length);
        scratch[i] = {static_cast<std::uint64_t>(length), rows[i]};
    }
    const auto top = static_cast<std::uint64_t>(longest);
    for (std::int64_t i = 0; i < rows.size; ++i) {
        scratch[i].key = top - scratch[i].key;
    }
    RankedRow *from = scratch, *to = scratch + rows.size;
    const std::uint64_t range = top - static_cast<std::uint64_t>(shortest);
    for (int shift = 0; shift < 64 && (range >> shift) != 0; shift += 8) {
        sort_by_byte(from, rows.size, shift, to);
        std::swap(from, to);
    }
    for (std::int64_t i = 0; i < rows.size; ++i) {
        rows[i] = from[i].row;
    }
}

}  // namespace

Status group_by_length(Span<const std::int64_t> lengths, std::int64_t megabatch, Span<RankedRow> scratch,
                       Span<std::int64_t> rows) {
    if (megabatch < 1 || scratch.size / 2 < std::min(megabatch, rows.size)) {
        return {Code::bad_argument};
    }
    std::int64_t longest = 0;  // the place of the first of the longest rows
    for (std::int64_t start = 0; start < rows.size;) {
        const std::int64_t count = std::min(megabatch, rows.size - start);
        for (std::int64_t i = start; i < start + count; ++i) {
            if (rows[i] < 0 || rows[i] >= lengths.size) {
                return {Code::bad_start, i};
            }
        }
        sort_rows(lengths, scratch.data, {rows.data + start, count});
        if (lengths[rows[start]] > lengths[rows[longest]]) {
            longest = start;
        }
        start += count;
    }
    if (rows.size > 0) {
        std::swap(rows[0], rows[longest]);
    }
    return {};
}

}  // namespace quadrat
