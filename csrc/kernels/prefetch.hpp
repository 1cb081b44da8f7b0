// Asks for cache lines without waiting for them: hints, for any address.
#pragma once

#include <algorithm>
#include <cstdint>

namespace quadrat {

template <bool to_write = false>
void prefetch(const void* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address, to_write ? 1 : 0);
#else
    static_cast<void>(address);
#endif
}

// What another thread, or another process, may write meanwhile.
template <typename T>
T peek(const T* place) {
#if defined(__GNUC__)
    return __atomic_load_n(place, __ATOMIC_RELAXED);
#else
    return *static_cast<const volatile T*>(place);
#endif
}

// What the processor's own prefetcher needs to see before it goes on by itself.
inline constexpr std::int64_t bytes_ahead = 256;

// Every line of `bytes` bytes.
template <bool to_write = false>
void prefetch_lines(const void* first, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += 64) {
        prefetch<to_write>(static_cast<const char*>(first) + at);
    }
}

// What the next copy reads and writes (null: nothing), at most a page of each. Rows lie anywhere, so each begins with
// misses that no hardware prefetcher foresees.
inline void prefetch_copy(const void* source, std::int64_t source_bytes, const void* target,
                          std::int64_t target_bytes) {
    constexpr std::int64_t most = 4096;
    prefetch_lines(source, std::min(most, source == nullptr ? 0 : source_bytes));
    prefetch_lines<true>(target, std::min(most, target == nullptr ? 0 : target_bytes));
}

}  // namespace quadrat
