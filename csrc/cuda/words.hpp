// Words of 16 bytes: the accesses that memory is moved with. Apart from the kernels so that tests reach the arithmetic.
#pragma once

#include <cstdint>
#include <cstring>

#include "index.hpp"

#if !defined(__CUDACC__)
#include <stdexcept>
#endif

namespace quadrat::cuda {

// Addresses are numbers here: a row's own may lie anywhere in a word, and so may its source's.
using Address = std::uint64_t;

inline constexpr int word_bytes = 16;

struct alignas(word_bytes) Word {
    std::uint32_t part[4];
};

QUADRAT_HOST_DEVICE inline Address address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

QUADRAT_HOST_DEVICE inline Address word_below(Address address) { return address & ~Address{word_bytes - 1}; }

// One element as often as it fits. value: its bits, in the low end; item: 1, 2, 4 or 8 bytes.
QUADRAT_HOST_DEVICE inline std::uint64_t repeated(std::uint64_t value, int item) {
    if (item == 1) {
        value &= 0xff;
        value |= value << 8;
    }
    if (item <= 2) {
        value &= 0xffff;
        value |= value << 16;
    }
    if (item <= 4) {
        value &= 0xffffffff;
        value |= value << 32;
    }
    return value;
}

QUADRAT_HOST_DEVICE inline Word word_of(std::uint64_t low, std::uint64_t high) {
    return {{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32), static_cast<std::uint32_t>(high),
             static_cast<std::uint32_t>(high >> 32)}};
}

// The low 32 bits of high:low shifted to the right by 0 to 31 bits.
QUADRAT_HOST_DEVICE inline std::uint32_t funnel(std::uint32_t low, std::uint32_t high, int bits) {
#if defined(__CUDA_ARCH__)
    return __funnelshift_r(low, high, bits);
#else
    return static_cast<std::uint32_t>(((std::uint64_t{high} << 32) | low) >> bits);
#endif
}

// The word that begins `bytes`, 0 to 15, after the first of two.
QUADRAT_HOST_DEVICE inline Word between(const Word& first, const Word& second, int bytes) {
    std::uint32_t x0 = first.part[0], x1 = first.part[1], x2 = first.part[2], x3 = first.part[3];
    std::uint32_t x4 = second.part[0], x5 = second.part[1];
    if ((bytes & 8) != 0) {
        x0 = x2, x1 = x3, x2 = x4, x3 = x5, x4 = second.part[2], x5 = second.part[3];
    }
    if ((bytes & 4) != 0) {
        x0 = x1, x1 = x2, x2 = x3, x3 = x4, x4 = x5;
    }
    const int bits = 8 * (bytes & 3);
    return {{funnel(x0, x1, bits), funnel(x1, x2, bits), funnel(x2, x3, bits), funnel(x3, x4, bits)}};
}

// The emulation refuses what a GPU would: an address that is not a multiple of the size.
QUADRAT_HOST_DEVICE inline void require_aligned([[maybe_unused]] Address address, [[maybe_unused]] std::size_t size) {
#if !defined(__CUDACC__)
    if (address % size != 0) {
        throw std::logic_error("a misaligned load or store");
    }
#endif
}

// Memory by address.
template <typename T>
QUADRAT_HOST_DEVICE inline T load(Address address) {
#if defined(__CUDA_ARCH__)
    return *reinterpret_cast<const T*>(address);
#else
    require_aligned(address, sizeof(T));
    T value;
    std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
    return value;
#endif
}

template <typename T>
QUADRAT_HOST_DEVICE inline void store(Address address, const T& value) {
#if defined(__CUDA_ARCH__)
    *reinterpret_cast<T*>(address) = value;
#else
    require_aligned(address, sizeof(T));
    std::memcpy(reinterpret_cast<void*>(address), &value, sizeof value);
#endif
}

// As load, of what nothing writes while the kernel runs.
template <typename T>
QUADRAT_HOST_DEVICE inline T load_constant(Address address) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == word_bytes) {
        const uint4 value = __ldg(reinterpret_cast<const uint4*>(address));
        return {{value.x, value.y, value.z, value.w}};
    } else if constexpr (sizeof(T) == 8) {
        return __ldg(reinterpret_cast<const unsigned long long*>(address));
    } else {
        return __ldg(reinterpret_cast<const T*>(address));
    }
#else
    return load<T>(address);
#endif
}

}  // namespace quadrat::cuda
