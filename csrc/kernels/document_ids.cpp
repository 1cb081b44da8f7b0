#include "document_ids.hpp"

#include "fill.hpp"

namespace quadrat {

Status document_ids(Span<const std::int64_t> start, const std::int64_t* lengths, std::int64_t* out,
                    std::int64_t out_size) {
    if (out_size < 0) {
        return {Code::bad_argument};
    }
    const Fill fill = find_fill(sizeof(std::int64_t));
    const std::int64_t none = 0;
    std::int64_t place = 0;
    for (std::int64_t i = 0; i < start.size; ++i) {
        if (start[i] < place || start[i] > out_size) {
            return {Code::bad_start, i};
        }
        if (lengths[i] < 0 || lengths[i] > out_size - start[i]) {
            return {Code::row_too_long, i};
        }
        const std::int64_t number = i + 1;
        fill(out + place, start[i] - place, &none);
        fill(out + start[i], lengths[i], &number);
        place = start[i] + lengths[i];
    }
    fill(out + place, out_size - place, &none);
    return {};
}

}  // namespace quadrat
