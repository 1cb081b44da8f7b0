// Writing past the caches. An output far larger than they are is not read again before it has left them; ordinary
// stores would fetch every line from memory only to overwrite it, two thirds of a copy's traffic instead of one half.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quadrat {

// Outputs of at least this many bytes are streamed: more than a core's share of any cache.
inline constexpr std::int64_t stream_threshold = std::int64_t{8} << 20;

inline bool streams(std::int64_t elements, std::size_t item) {
    return elements >= stream_threshold / static_cast<std::int64_t>(item);
}

// As memcpy; whole cache lines go past the caches.
void stream_copy(void* target, const void* source, std::size_t bytes);

// `count` copies of the element of `item` bytes (1, 2, 4 or 8) at `value`.
void stream_fill(void* target, std::int64_t count, const void* value, std::size_t item);

// Orders streamed stores before everything after: once at the end of a kernel that streams.
void stream_fence();

}  // namespace quadrat
