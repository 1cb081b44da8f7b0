#include "populate.hpp"

#if defined(__linux__)
#include <sys/mman.h>

#include <cerrno>
#endif

namespace quadrat::memory {

bool populate([[maybe_unused]] void* data, [[maybe_unused]] std::size_t size) {
#if defined(__linux__)
    constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, of Linux 5.14: newer than many headers
    return madvise(data, size, populate_write) == 0 || errno != EFAULT;
#else
    return true;
#endif
}

}  // namespace quadrat::memory
