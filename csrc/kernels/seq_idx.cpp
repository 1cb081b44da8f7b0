#include "seq_idx.hpp"

#include <limits>

#include "fill.hpp"

namespace quadrat {

template <typename T>
Status seq_idx(Span<const std::int64_t> start, const std::int64_t* lengths, RowNumbers numbers, T* out,
               std::int64_t out_size) {
    if (out_size < 0 || start.size >= std::numeric_limits<std::int32_t>::max()) {
        return {Code::bad_argument};
    }
    const Fill fill = find_fill(sizeof(T));
    const T none = numbers.none;
    std::int64_t place = 0;
    for (std::int64_t i = 0; i < start.size; ++i) {
        if (start[i] < place || start[i] > out_size) {
            return {Code::bad_start, i};
        }
        if (lengths[i] < 0 || lengths[i] > out_size - start[i]) {
            return {Code::row_too_long, i};
        }
        const T number = numbers.first + static_cast<T>(i);
        if (start[i] > place) {
            fill(out + place, start[i] - place, &none);
        }
        fill(out + start[i], lengths[i], &number);
        place = start[i] + lengths[i];
    }
    fill(out + place, out_size - place, &none);
    return {};
}

template Status seq_idx(Span<const std::int64_t>, const std::int64_t*, RowNumbers, std::int32_t*, std::int64_t);
template Status seq_idx(Span<const std::int64_t>, const std::int64_t*, RowNumbers, std::int64_t*, std::int64_t);

}  // namespace quadrat
