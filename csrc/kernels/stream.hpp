// Copying past the caches, for outputs far larger than they are: ordinary stores fetch each line only to overwrite it.
// Runs of one value are not streamed: ordinary stores fill twice as fast (measured; streamed copies gain a fifth).
#pragma once

#include <cstddef>
#include <cstdint>

#include "bytes.hpp"

namespace quadrat {

// Outputs of at least this many bytes are streamed: more than a core's share of any cache.
inline constexpr std::int64_t stream_threshold = std::int64_t{8} << 20;

inline bool streams(std::int64_t elements, std::size_t item) {
    return elements >= stream_threshold / static_cast<std::int64_t>(item);
}

// As copy_bytes; whole cache lines go past the caches.
void stream_copy(void* target, const void* source, std::size_t bytes);

// Orders streamed stores before everything after: once at the end of a kernel that streams.
void stream_fence();

// The copies of a kernel whose output has so many bytes, streamed or not.
class Copier {
public:
    explicit Copier(std::size_t output) : streams_(output >= static_cast<std::size_t>(stream_threshold)) {}
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
    bool streams_;
};

}  // namespace quadrat
