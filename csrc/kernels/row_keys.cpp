#include "row_keys.hpp"

#include "simd.hpp"

namespace quadrat {
namespace {

QUADRAT_CLONES std::uint64_t sum_of(const std::int64_t* tokens, std::int64_t length) {
    std::uint64_t sum = 0;
    for (std::int64_t i = 0; i < length; ++i) {
        sum += key_of_token(tokens[i], i);
    }
    return sum;
}

}  // namespace

Status row_keys(Span<const std::int64_t> values, Span<const std::int64_t> start, const std::int64_t* lengths,
                std::uint64_t* out) {
    for (std::int64_t i = 0; i < start.size; ++i) {
        if (start[i] < 0 || start[i] > values.size || lengths[i] < 0 || lengths[i] > values.size - start[i]) {
            return {Code::row_too_long, i};
        }
        out[i] = key_of_token(lengths[i], -1) + sum_of(values.data + start[i], lengths[i]);
    }
    return {};
}

}  // namespace quadrat
