#include "bytes.hpp"

#include <cstring>
#include <iterator>

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
    static constexpr Fill fills[] = {nullptr, fill_uint8_t, fill_uint16_t, nullptr,      fill_uint32_t,
                                     nullptr, nullptr,      nullptr,       fill_uint64_t};
    return item < std::size(fills) ? fills[item] : nullptr;
}

}  // namespace quadrat
