#include "fill_ends.hpp"

#include "fill.hpp"

namespace quadrat {

Status fill_ends(Span<const std::int64_t> start, const std::int64_t* lengths, Kind kind, const void* value, void* out,
                 std::int64_t out_size) {
    const std::size_t item = item_size(kind);
    const Fill fill = find_fill(item);
    for (std::int64_t i = 0; i + 1 < start.size; ++i) {
        const std::int64_t begin = start[i], end = start[i + 1];
        if (begin < 0 || end < begin || end > out_size) {
            return {Code::bad_start, i};
        }
        if (lengths[i] < 0 || lengths[i] > end - begin) {
            return {Code::row_too_long, i};
        }
        if (const std::int64_t gap = end - begin - lengths[i]; gap > 0) {  // usually there is none
            fill(static_cast<char*>(out) + static_cast<std::size_t>(begin + lengths[i]) * item, gap, value);
        }
    }
    return {};
}

}  // namespace quadrat
