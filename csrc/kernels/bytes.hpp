// Copies and fills. memcpy, memmove and memset may not be given a null pointer even for no bytes, and an array or a
// tensor without elements has no other address: these take as many bytes as it takes, none included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace quadrat {

inline std::size_t bytes_of(std::int64_t count, std::size_t item) { return static_cast<std::size_t>(count) * item; }

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

// f of an integer of so many bytes; other() where there is none.
template <typename F, typename Other>
auto with_item(std::size_t item, F f, Other other) {
    return item == 1   ? f(std::uint8_t{})
           : item == 2 ? f(std::uint16_t{})
           : item == 4 ? f(std::uint32_t{})
           : item == 8 ? f(std::uint64_t{})
                       : other();
}

// Runs of one element: writes `count` copies of that at `value`.
using Fill = void (*)(void* out, std::int64_t count, const void* value);

// item: 1, 2, 4 or 8 bytes; null for any other.
Fill find_fill(std::size_t item);

// first, first + 1, ...
void count_up(std::int64_t first, std::int64_t count, std::int64_t* out);

// As copy_bytes, past the caches, for outputs far larger than they are: ordinary stores fetch each line only to
// overwrite it. Streamed copies gain a fifth; runs of one value take twice as long, and are not streamed.
void stream_copy(void* target, const void* source, std::size_t bytes);
void stream_fence();  // orders streamed stores before everything after

// The copies of a kernel whose output has so many bytes, streamed or not.
class Copier {
public:
    explicit Copier(std::size_t output) : streams_(output >= threshold) {}
    ~Copier() {
        if (streams_) {
            stream_fence();
        }
    }
    Copier(const Copier&) = delete;
    Copier& operator=(const Copier&) = delete;

    bool streams() const { return streams_; }
    void operator()(void* target, const void* source, std::size_t bytes) const {
        streams_ ? stream_copy(target, source, bytes) : copy_bytes(target, source, bytes);
    }

private:
    static constexpr std::size_t threshold = std::size_t{8} << 20;  // more than a core's share of any cache
    bool streams_;
};

}  // namespace quadrat
