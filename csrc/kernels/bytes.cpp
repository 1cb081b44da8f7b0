#include "bytes.hpp"

#include <algorithm>
#include <iterator>

#include "simd.hpp"

#if defined(__x86_64__) || defined(_M_X64)
#include <emmintrin.h>
#define QUADRAT_STREAMS 1
#else
#define QUADRAT_STREAMS 0
#endif

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

QUADRAT_CLONES void count_up(std::int64_t first, std::int64_t count, std::int64_t* out) {
    for (std::int64_t i = 0; i < count; ++i) {
        out[i] = first + i;
    }
}

void stream_copy(void* target, const void* source, std::size_t bytes) {
#if QUADRAT_STREAMS
    char* out = static_cast<char*>(target);
    const char* in = static_cast<const char*>(source);
    constexpr std::size_t line = 64;
    const std::size_t head = std::min(bytes, (line - reinterpret_cast<std::uintptr_t>(out) % line) % line);
    copy_bytes(out, in, head);
    std::size_t done = head;
    for (; done + line <= bytes; done += line) {
        for (std::size_t part = 0; part < line; part += sizeof(__m128i)) {
            const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + done + part));
            _mm_stream_si128(reinterpret_cast<__m128i*>(out + done + part), value);
        }
    }
    copy_bytes(out + done, in + done, bytes - done);
#else
    copy_bytes(target, source, bytes);
#endif
}

void stream_fence() {
#if QUADRAT_STREAMS
    _mm_sfence();
#endif
}

}  // namespace quadrat
