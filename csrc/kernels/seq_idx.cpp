#include "seq_idx.hpp"

#include <limits>

#include "fill.hpp"

namespace quadrat {

Status seq_idx(Span<const std::int64_t> lengths, std::int32_t* out, std::int64_t out_size) {
    if (out_size < 0 || lengths.size > std::numeric_limits<std::int32_t>::max()) {
        return {Code::bad_argument};
    }
    const Fill fill = find_fill(sizeof(std::int32_t));
    std::int64_t place = 0;
    for (std::int64_t i = 0; i < lengths.size; ++i) {
        if (lengths[i] < 0 || lengths[i] > out_size - place) {
            return {Code::row_too_long, i};
        }
        const auto row = static_cast<std::int32_t>(i);
        fill(out + place, lengths[i], &row);
        place += lengths[i];
    }
    const std::int32_t none = -1;
    fill(out + place, out_size - place, &none);
    return {};
}

}  // namespace quadrat
