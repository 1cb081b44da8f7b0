// Memory that grows at its end, for what an evaluation gathers. Growing large memory moves its pages, not their bytes,
// and pages that were never written take up no memory.
#pragma once

#include <cstddef>

namespace quadrat::memory {

class Growing {
public:
    Growing() = default;
    ~Growing() { clear(); }
    Growing(const Growing&) = delete;
    Growing& operator=(const Growing&) = delete;

    char* data() const { return data_; }
    std::size_t size() const { return size_; }

    // `bytes` more at the end, uninitialised; false where there is no memory, and then nothing has changed. Addresses
    // taken before are void.
    bool extend(std::size_t bytes);
    // Forgets what comes after the first `bytes`, of which there are not fewer.
    void truncate(std::size_t bytes) { size_ = bytes; }
    // Gives back what is not used.
    void fit();

private:
    bool reserve(std::size_t capacity);
    void clear();

    char* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

}  // namespace quadrat::memory
