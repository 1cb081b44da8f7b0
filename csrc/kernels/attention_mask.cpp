#include "attention_mask.hpp"

#include "convert.hpp"
#include "fill.hpp"

namespace quadrat {

Status attention_mask(Span<const std::int64_t> lengths, std::int64_t width, Side side, Kind kind, void* out) {
    if (width < 0) {
        return {Code::bad_argument};
    }
    const std::size_t item = item_size(kind);
    const Fill fill = find_fill(item);
    const std::uint64_t zero = 0;
    const std::uint8_t yes = 1;
    std::uint64_t one = 0;
    find_convert(Kind::bool_, kind)(&yes, &one, 1);
    for (std::int64_t i = 0; i < lengths.size; ++i) {
        const std::int64_t gap = width - lengths[i];
        if (lengths[i] < 0 || gap < 0) {
            return {Code::row_too_long, i};
        }
        char* const row = static_cast<char*>(out) + static_cast<std::size_t>(i * width) * item;
        const std::int64_t before = side == Side::left ? gap : 0;
        fill(row, before, &zero);
        fill(row + static_cast<std::size_t>(before) * item, lengths[i], &one);
        fill(row + static_cast<std::size_t>(before + lengths[i]) * item, gap - before, &zero);
    }
    return {};
}

}  // namespace quadrat
