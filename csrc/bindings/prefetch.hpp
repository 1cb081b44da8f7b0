// Asks for a cache line without waiting for it; a hint, for any address.
#pragma once

namespace quadrat {

inline void prefetch(const void* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address);
#else
    static_cast<void>(address);
#endif
}

}  // namespace quadrat
