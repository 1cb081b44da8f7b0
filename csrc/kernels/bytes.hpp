// Copies and fills of as many bytes as it takes, none included. memcpy, memmove and memset may not be given a null
// pointer even for no bytes, and an array or a tensor without elements has no other address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace quadrat {

inline void copy_bytes(void* out, const void* in, std::size_t bytes) {
    if (bytes != 0) {
        std::memcpy(out, in, bytes);
    }
}

// As copy_bytes, where the two may overlap.
inline void move_bytes(void* out, const void* in, std::size_t bytes) {
    if (bytes != 0) {
        std::memmove(out, in, bytes);
    }
}

inline void fill_bytes(void* out, unsigned char value, std::size_t bytes) {
    if (bytes != 0) {
        std::memset(out, value, bytes);
    }
}

// Runs of one element: writes `count` copies of that at `value`.
using Fill = void (*)(void* out, std::int64_t count, const void* value);

// item: 1, 2, 4 or 8 bytes; null for any other.
Fill find_fill(std::size_t item);

}  // namespace quadrat
