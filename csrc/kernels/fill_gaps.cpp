#include "fill_gaps.hpp"

#include "fill.hpp"

namespace quadrat {

Status fill_gaps(Span<const std::int64_t> lengths, std::int64_t width, Side side, Kind kind, const void* value,
                 void* out) {
    if (width < 0) {
        return {Code::bad_argument};
    }
    const std::size_t item = item_size(kind);
    const Fill fill = find_fill(item);
    for (std::int64_t i = 0; i < lengths.size; ++i) {
        const std::int64_t gap = width - lengths[i];
        if (lengths[i] < 0 || gap < 0) {
            return {Code::row_too_long, i};
        }
        const std::int64_t first = i * width + (side == Side::right ? lengths[i] : 0);
        char* const target = static_cast<char*>(out) + static_cast<std::size_t>(first) * item;
        fill(target, gap, value);
    }
    return {};
}

}  // namespace quadrat
