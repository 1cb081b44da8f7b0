#include "fill.hpp"

#include <cstring>

#include "simd.hpp"

namespace quadrat {
namespace {

#define QUADRAT_FILL(T)                                                              \
    QUADRAT_CLONES void fill_##T(void* out, std::int64_t count, const void* value) { \
        std::T pattern;                                                              \
        std::memcpy(&pattern, value, sizeof pattern);                                \
        std::T* const target = static_cast<std::T*>(out);                            \
        for (std::int64_t i = 0; i < count; ++i) {                                   \
            target[i] = pattern;                                                     \
        }                                                                            \
    }

QUADRAT_FILL(uint8_t)
QUADRAT_FILL(uint16_t)
QUADRAT_FILL(uint32_t)
QUADRAT_FILL(uint64_t)

}  // namespace

Fill find_fill(std::size_t item) {
    switch (item) {
        case 1:
            return fill_uint8_t;
        case 2:
            return fill_uint16_t;
        case 4:
            return fill_uint32_t;
        default:
            return fill_uint64_t;
    }
}

}  // namespace quadrat
