#include "group_by_length.hpp"

#include <algorithm>
#include <utility>

#include "sort_rows.hpp"

namespace quadrat {

Status group_by_length(Span<const std::int64_t> lengths, std::int64_t megabatch, Span<std::int64_t> spare,
                       Span<std::int64_t> rows, Watch& watch) {
    if (megabatch < 1 || spare.size < std::min(megabatch, rows.size)) {
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
        sort_rows(lengths.data, {rows.data + start, count}, spare.data, watch);
        if (lengths[rows[start]] > lengths[rows[longest]]) {
            longest = start;
        }
        start += count;
        watch.after(count);
    }
    if (rows.size > 0) {
        std::swap(rows[0], rows[longest]);
    }
    return {};
}

}  // namespace quadrat
