// Runs of elements from one kind to another: the inner loops of copy_rows.
#pragma once

#include <cstdint>
#include <cstring>

#include "types.hpp"

namespace quadrat {

template <typename To, typename From>
To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    std::memcpy(&result, &value, sizeof result);
    return result;
}

// All bits, or none.
inline std::uint32_t chosen_if(bool yes) { return 0U - static_cast<std::uint32_t>(yes); }

// Numbers of 16 bits, for conversions only. `nearest` is no constructor: clang forgets those that only clones of
// functions call. It has no branch, so that loops vectorise; of two numbers as near it takes the even one.

// As IEEE 754 has them.
struct Half {
    std::uint16_t bits;

    static Half nearest(float value) {
        constexpr std::uint32_t infinity = 0x7F800000, beyond = 0x47800000;  // 2^16; 65520 and above round to it
        constexpr std::uint32_t least_normal = 0x38800000;                   // 2^-14
        constexpr std::uint32_t half = 0x3F000000;  // 0.5: the last digit of a sum with it is that of the smallest Half
        const auto pattern = bits_as<std::uint32_t>(value);
        const std::uint32_t size = pattern & 0x7FFFFFFF;
        const std::uint32_t usual = (size + 0xFFF + ((size >> 13) & 1) - ((127U - 15U) << 23)) >> 13;
        const std::uint32_t small = bits_as<std::uint32_t>(bits_as<float>(size) + 0.5F) - half;
        const std::uint32_t large = 0x7C00U | (chosen_if(size > infinity) & 0x200U);
        const std::uint32_t is_large = chosen_if(size >= beyond), is_small = chosen_if(size < least_normal);
        const std::uint32_t result = (large & is_large) | (small & is_small) | (usual & ~(is_large | is_small));
        return {static_cast<std::uint16_t>(result | ((pattern >> 16) & 0x8000U))};
    }

    // Without numbers below the smallest normal float, which the processor may flush to 0.
    explicit operator float() const {
        const std::uint32_t exponent = (bits >> 10) & 31U, digits = bits & 1023U;
        std::uint32_t pattern = 0x7F800000U | (digits << 13);
        if (exponent != 31) {
            const float whole = static_cast<float>(digits | (exponent != 0 ? 1024U : 0U));
            const std::uint32_t power = (127 - 25 + (exponent != 0 ? exponent : 1)) << 23;  // 2^(exponent - 25)
            pattern = bits_as<std::uint32_t>(whole * bits_as<float>(power));
        }
        return bits_as<float>(pattern | (static_cast<std::uint32_t>(bits & 0x8000U) << 16));
    }
    explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
};

// The upper half of a float: bfloat16.
struct Brain {
    std::uint16_t bits;

    static Brain nearest(float value) {
        const auto pattern = bits_as<std::uint32_t>(value);
        const std::uint32_t rounded = (pattern + 0x7FFF + ((pattern >> 16) & 1)) >> 16;
        const std::uint32_t is_nan = chosen_if((pattern & 0x7FFFFFFF) > 0x7F800000);
        return {static_cast<std::uint16_t>((rounded & ~is_nan) | (((pattern >> 16) | 0x7FC0U) & is_nan))};
    }

    explicit operator float() const { return bits_as<float>(static_cast<std::uint32_t>(bits) << 16); }
    explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
};

// Converts `count` contiguous elements; false when a value does not fit the target kind: they may then be anything.
// Numbers of 16 bits are made of floats, as torch makes them: float64 and integers are rounded twice.
using Convert = bool (*)(const void* source, void* target, std::int64_t count);

// nullptr when there is no conversion that keeps the meaning: float to int, anything but bool to bool.
Convert find_convert(Kind source, Kind target);

}  // namespace quadrat
