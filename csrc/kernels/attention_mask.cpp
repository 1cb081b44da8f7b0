#include "attention_mask.hpp"

#include <cstring>

#include "fill.hpp"

namespace quadrat {
namespace {

// The number 1 as one element of `kind`.
void write_one(Kind kind, void* out) {
    if (kind == Kind::float32) {
        const float one = 1.0F;
        std::memcpy(out, &one, sizeof one);
    } else if (kind == Kind::float64) {
        const double one = 1.0;
        std::memcpy(out, &one, sizeof one);
    } else {
        std::uint64_t one = 0;
        const std::uint8_t one8 = 1;
        const std::uint16_t one16 = 1;
        const std::uint32_t one32 = 1;
        const std::uint64_t one64 = 1;
        const void* const sources[9] = {nullptr, &one8, &one16, nullptr, &one32, nullptr, nullptr, nullptr, &one64};
        std::memcpy(&one, sources[item_size(kind)], item_size(kind));
        std::memcpy(out, &one, item_size(kind));
    }
}

}  // namespace

Status attention_mask(Span<const std::int64_t> lengths, std::int64_t width, Side side, Kind kind, void* out) {
    if (width < 0) {
        return {Code::bad_argument};
    }
    const std::size_t item = item_size(kind);
    const Fill fill = find_fill(item);
    const std::uint64_t zero = 0;
    std::uint64_t one = 0;
    write_one(kind, &one);
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
