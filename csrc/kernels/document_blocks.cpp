#include "document_blocks.hpp"

#include <algorithm>
#include <limits>

#include "simd.hpp"

namespace quadrat {
namespace {

// From `begin` to before `end`.
struct Run {
    std::int64_t begin;
    std::int64_t end;
};

// The tokens of its document that one sees. place: the document after that of a token before it, or 0; it moves on.
Run seen_by(std::int64_t token, Span<const std::int64_t> offsets, std::int64_t total, Reach reach,
            std::int64_t* place) {
    std::int64_t next = *place;
    while (next < offsets.size && offsets[next] <= token) {
        ++next;
    }
    *place = next;
    const std::int64_t begin = next == 0 ? 0 : offsets[next - 1], end = next < offsets.size ? offsets[next] : total;
    return {token - std::min(reach.before, token - begin), token + std::min(reach.after, end - 1 - token) + 1};
}

QUADRAT_CLONES std::int32_t* count_up(std::int64_t begin, std::int64_t end, std::int32_t* out) {
    const auto first = static_cast<std::int32_t>(begin);
    const auto count = static_cast<std::int32_t>(std::max<std::int64_t>(0, end - begin));
    for (std::int32_t i = 0; i < count; ++i) {
        out[i] = first + i;
    }
    return out + count;
}

Status check(Span<const std::int64_t> offsets, std::int64_t total, Reach reach, BlockSize size) {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    if (total < 0 || reach.before < 0 || reach.after < 0 || size.row < 1 || size.column < 1 ||
        total > most * std::min(size.row, size.column)) {
        return {Code::bad_argument};
    }
    for (std::int64_t i = 0; i < offsets.size; ++i) {
        if (offsets[i] < (i == 0 ? 0 : offsets[i - 1]) || offsets[i] > total || (i == 0 && offsets[i] != 0)) {
            return {Code::bad_start, i};
        }
    }
    return {};
}

}  // namespace

Status document_blocks(Span<const std::int64_t> offsets, std::int64_t total, Reach reach, BlockSize size,
                       BlockLists partial, BlockLists full) {
    if (const Status status = check(offsets, total, reach, size); !status) {
        return status;
    }
    const std::int64_t columns = round_up(total, size.column) / size.column;
    std::int64_t of_first = 0, of_last = 0;  // the documents after theirs
    for (std::int64_t row = 0; row * size.row < total; ++row) {
        const std::int64_t first = row * size.row, last = std::min(first + size.row, total) - 1;
        const Run begins = seen_by(first, offsets, total, reach, &of_first),
                  ends = seen_by(last, offsets, total, reach, &of_last);
        const Run any{begins.begin / size.column, round_up(ends.end, size.column) / size.column};
        Run all{round_up(ends.begin, size.column) / size.column, begins.end / size.column};
        if (all.begin >= all.end || first + size.row > total) {
            all = {any.end, any.end};
        }
        *full.counts++ = static_cast<std::int32_t>(all.end - all.begin);
        full.columns = count_up(all.begin, all.end, full.columns);
        full.columns = count_up(0, all.begin, full.columns);
        full.columns = count_up(all.end, columns, full.columns);

        *partial.counts++ = static_cast<std::int32_t>(any.end - any.begin - (all.end - all.begin));
        partial.columns = count_up(any.begin, all.begin, partial.columns);
        partial.columns = count_up(all.end, any.end, partial.columns);
        partial.columns = count_up(0, any.begin, partial.columns);
        partial.columns = count_up(all.begin, all.end, partial.columns);
        partial.columns = count_up(any.end, columns, partial.columns);
    }
    return {};
}

}  // namespace quadrat
