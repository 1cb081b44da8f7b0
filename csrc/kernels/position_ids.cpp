#include "position_ids.hpp"

#include <limits>

#include "simd.hpp"

namespace quadrat {
namespace {

QUADRAT_CLONES void count_up(std::int64_t first, std::int64_t count, std::int64_t* out) {
    for (std::int64_t i = 0; i < count; ++i) {
        out[i] = first + i;
    }
}

// The last row that has tokens, or -1.
std::int64_t last_row(Span<const std::int64_t> lengths) {
    std::int64_t row = lengths.size - 1;
    while (row >= 0 && lengths[row] == 0) {
        --row;
    }
    return row;
}

}  // namespace

Status position_ids(Span<const std::int64_t> lengths, std::int64_t start, std::int64_t* out, std::int64_t out_size) {
    const std::int64_t last = last_row(lengths);
    if (out_size < 0 || (last < 0 && out_size > 0)) {
        return {Code::bad_argument};
    }
    std::int64_t place = 0;
    for (std::int64_t i = 0; i <= last; ++i) {
        if (lengths[i] < 0 || lengths[i] > out_size - place) {
            return {Code::row_too_long, i};
        }
        const std::int64_t count = i == last ? out_size - place : lengths[i];
        if (count > 0 && start > std::numeric_limits<std::int64_t>::max() - (count - 1)) {
            return {Code::out_of_range, i};
        }
        count_up(start, count, out + place);
        place += count;
    }
    return {};
}

}  // namespace quadrat
