// A pointer and a count. C++17 has no std::span, and the kernels need no more than this.
#pragma once

#include <cstdint>

namespace quadrat {

template <typename T>
struct Span {
    T* data = nullptr;
    std::int64_t size = 0;

    T& operator[](std::int64_t i) const { return data[i]; }
    T* begin() const { return data; }
    T* end() const { return data + size; }
};

}  // namespace quadrat
