#include "growing.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "../kernels/bytes.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace quadrat::memory {
namespace {

constexpr std::size_t smallest = std::size_t{1} << 12;
#if defined(__linux__)
// From here on memory is mapped: smaller ones would waste the rest of a page, and be slower to get.
constexpr std::size_t mapped = std::size_t{1} << 18;
// What is mapped has this much room, for what is not written costs nothing, and moving takes huge pages apart.
constexpr std::size_t room = std::size_t{64} << 20;
constexpr std::size_t huge_page = std::size_t{2} << 20;

char* mapping(void* data) { return data == MAP_FAILED ? nullptr : static_cast<char*>(data); }
#else
constexpr std::size_t mapped = std::numeric_limits<std::size_t>::max();
constexpr std::size_t room = 0;
#endif

// Up to whole pages.
std::size_t rounded(std::size_t bytes) { return (bytes + smallest - 1) & ~(smallest - 1); }

}  // namespace

bool Growing::extend(std::size_t bytes) {
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 4;
    if (bytes > most || size_ > most - bytes) {
        return false;
    }
    const std::size_t needed = size_ + bytes;
    // By half at least, so that moving costs a constant a byte; by no more than is needed where memory is short.
    if (needed > capacity_) {
        const std::size_t ample = std::max(needed, capacity_ + capacity_ / 2);
        if (!reserve(ample < mapped ? ample : std::max(ample, room)) && !reserve(needed)) {
            return false;
        }
    }
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (size_ < 2 * huge_page && needed >= 2 * huge_page) {
        madvise(data_, capacity_, MADV_HUGEPAGE);  // advice: where it is refused, small pages serve
    }
#endif
    size_ = needed;
    return true;
}

void Growing::fit() {
    if (size_ > 0 && rounded(size_) < capacity_) {
        reserve(size_);
    }
}

bool Growing::reserve(std::size_t capacity) {
    capacity = rounded(capacity);
    char* data = nullptr;
#if defined(__linux__)
    if (capacity_ >= mapped && capacity >= mapped) {
        data = mapping(mremap(data_, capacity_, capacity, MREMAP_MAYMOVE));
    } else if (capacity_ >= mapped) {
        return true;  // shrinking below: the few pages to gain are not worth a copy
    } else if (capacity >= mapped) {
        data = mapping(mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (data != nullptr) {
            copy_bytes(data, data_, size_);
            std::free(data_);
        }
    }
#endif
    if (capacity < mapped) {
        data = static_cast<char*>(std::realloc(data_, capacity));
    }
    if (data == nullptr) {
        return false;
    }
    data_ = data;
    capacity_ = capacity;
    return true;
}

void Growing::clear() {
#if defined(__linux__)
    if (capacity_ >= mapped) {
        munmap(data_, capacity_);
        return;
    }
#endif
    std::free(data_);
}

}  // namespace quadrat::memory
