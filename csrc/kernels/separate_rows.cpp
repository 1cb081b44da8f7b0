#include "separate_rows.hpp"

#include <cstring>

namespace quadrat {

Status separate_rows(Span<const std::int64_t> start, Kind kind, const void* value, void* out, std::int64_t out_size) {
    const std::size_t item = item_size(kind);
    for (std::int64_t i = 0; i < start.size; ++i) {
        if (start[i] < 0 || start[i] >= out_size) {
            return {Code::bad_start, i};
        }
        std::memcpy(static_cast<char*>(out) + static_cast<std::size_t>(start[i]) * item, value, item);
    }
    return {};
}

}  // namespace quadrat
