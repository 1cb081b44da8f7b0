#include "check_offsets.hpp"

namespace quadrat {

Status check_offsets(Span<const std::int64_t> offsets, std::int64_t size, LongestRow* longest) {
    if (offsets.size < 1) {
        return {Code::bad_argument};
    }
    std::int64_t begin = offsets[0];
    if (begin < 0 || begin > size) {
        return {Code::bad_start, 0};
    }
    LongestRow found;
    for (std::int64_t row = 0; row + 1 < offsets.size; ++row) {
        const std::int64_t end = offsets[row + 1];
        if (end < begin || end > size) {
            return {Code::bad_start, row};
        }
        if (end - begin > found.length) {
            found = {row, end - begin};
        }
        begin = end;
    }
    *longest = found;
    return {};
}

}  // namespace quadrat
