#include "cu_seqlens.hpp"

#include <limits>

namespace quadrat {
namespace {

template <typename T>
Status add_up(Span<const std::int64_t> lengths, T* out) {
    constexpr auto most = static_cast<std::int64_t>(std::numeric_limits<T>::max());
    std::int64_t total = 0;
    out[0] = 0;
    for (std::int64_t i = 0; i < lengths.size; ++i) {
        if (lengths[i] < 0 || lengths[i] > most - total) {
            return {Code::out_of_range, i};
        }
        total += lengths[i];
        out[i + 1] = static_cast<T>(total);
    }
    return {};
}

}  // namespace

Status cu_seqlens(Span<const std::int64_t> lengths, Kind kind, void* out) {
    switch (kind) {
        case Kind::int32:
            return add_up(lengths, static_cast<std::int32_t*>(out));
        case Kind::int64:
            return add_up(lengths, static_cast<std::int64_t*>(out));
        default:
            return {Code::bad_argument};
    }
}

}  // namespace quadrat
