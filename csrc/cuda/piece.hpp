// Pieces: how outputs made of rows are written. A row of an output is a region, of which a part is data and the rest,
// on either side, is filled. Threads in groups take a piece of a row each. In it, whatever makes up whole words of 16
// bytes is written in words, read from wherever the source lies in its words; the few elements at the ends follow one
// by one. Apart from the kernels so that tests reach the arithmetic.
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

// One row of an output, as addresses: begin <= data_begin <= data_end <= end. `source` is where the data come from.
struct Region {
    Address begin, end;
    Address data_begin, data_end;
    Address source;
};

// Where the words of a piece are, in bytes from its start: words of filling from head to head_end and from tail to
// tail_end, words of data from data to data_end. What is not in them is written by elements.
struct Words {
    int head, head_end;
    int data, data_end;
    int tail, tail_end;
};

// A piece of a region: `to` begins a word, everything else counts from there. Byte i of the data comes from from + i.
struct Piece {
    Address to, from;
    int begin, end;
    int data_begin, data_end;
};

// The piece of so many bytes at this distance from the word that the region begins in; both are multiples of a word.
QUADRAT_HOST_DEVICE inline Piece piece_of(const Region& region, std::uint64_t distance, int bytes) {
    const Address to = word_below(region.begin) + distance;
    const auto inside = [&](Address address, int low, int high) {
        const std::int64_t place = static_cast<std::int64_t>(address - to);
        return static_cast<int>(clamp(place, low, high));
    };
    Piece piece;
    piece.to = to;
    piece.from = to + (region.source - region.data_begin);  // modulo 2**64, as the sum of this and a place in the data
    piece.begin = inside(region.begin, 0, bytes);
    piece.end = inside(region.end, 0, bytes);
    piece.data_begin = inside(region.data_begin, piece.begin, piece.end);
    piece.data_end = inside(region.data_end, piece.data_begin, piece.end);
    return piece;
}

// From the word that a region begins in to its end.
QUADRAT_HOST_DEVICE inline std::uint64_t span_of(const Region& region) {
    return region.end > region.begin ? region.end - word_below(region.begin) : 0;
}

// The place of a row in a padded output of elements of so many bytes; the source is left open.
QUADRAT_HOST_DEVICE inline Region padded_region(const void* out, std::int64_t row, std::int64_t length,
                                                std::int64_t width, Side side, std::int64_t bytes) {
    const Run data = padded_run(row, length, width, side);
    const Address begin = address_of(out) + static_cast<Address>(row * width * bytes);
    const Address first = address_of(out) + static_cast<Address>(data.first * bytes);
    return {begin, begin + static_cast<Address>(width * bytes), first,
            first + static_cast<Address>(data.length * bytes), first};
}

QUADRAT_HOST_DEVICE inline int up_to_word(int place) { return (place + word_bytes - 1) & -word_bytes; }
QUADRAT_HOST_DEVICE inline int down_to_word(int place) { return place & -word_bytes; }

// low, high: the bounds of the memory that may be read; a word of data needs one or two whole words inside it.
QUADRAT_HOST_DEVICE inline Words words_of(const Piece& piece, Address low, Address high) {
    Words words;
    words.head = up_to_word(piece.begin);
    words.head_end = down_to_word(piece.data_begin);
    if (words.head_end <= words.head) {
        words.head = words.head_end = piece.begin;
    }
    words.tail = up_to_word(piece.data_end);
    words.tail_end = down_to_word(piece.end);
    if (words.tail_end <= words.tail) {
        words.tail = words.tail_end = piece.end;
    }
    const int shift = static_cast<int>(piece.from % word_bytes);
    const Address source = piece.from - static_cast<Address>(shift);
    words.data = up_to_word(piece.data_begin);
    words.data_end = down_to_word(piece.data_end);
    if (words.data < words.data_end && source + static_cast<Address>(words.data) < low) {
        words.data += word_bytes;
    }
    const int reach = shift == 0 ? 0 : word_bytes;
    if (words.data < words.data_end && source + static_cast<Address>(words.data_end + reach) > high) {
        words.data_end -= word_bytes;
    }
    if (words.data_end <= words.data) {
        words.data = words.data_end = piece.data_begin;
    }
    return words;
}

}  // namespace quadrat::cuda
