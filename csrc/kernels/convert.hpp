// Runs of elements from one kind to another: the inner loops of copy_rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "types.hpp"

namespace quadrat {

// A number of 16 bits, as IEEE 754 has them: for conversions only.
struct Half {
    std::uint16_t bits;

    // The nearest one; of two, the even one. No constructor: clang forgets those that only clones of functions call.
    static Half nearest(double value) {
        const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
        constexpr double beyond = 65520;  // from here on numbers round to infinity
        const double size = std::fabs(value);
        if (!(size < beyond)) {
            return {static_cast<std::uint16_t>(sign | (std::isnan(value) ? 0x7E00 : 0x7C00))};
        }
        constexpr int least = -13;  // of the exponents that frexp gives to numbers with all digits
        int exponent = 0;
        std::frexp(size, &exponent);
        exponent = size == 0 || exponent < least ? least : exponent;
        const double digits =
            std::nearbyint(std::ldexp(size, 11 - exponent));  // 1024 and above: the leading 1 is there
        return {static_cast<std::uint16_t>(sign + ((exponent - least) << 10) + static_cast<int>(digits))};
    }

    // Without numbers below the smallest normal float, which the processor may flush to 0.
    explicit operator float() const {
        const std::uint32_t exponent = (bits >> 10) & 31U, digits = bits & 1023U;
        std::uint32_t pattern = 0x7F800000U | (digits << 13);
        if (exponent != 31) {
            const float whole = static_cast<float>(digits | (exponent != 0 ? 1024U : 0U));
            const std::uint32_t power = (127 - 25 + (exponent != 0 ? exponent : 1)) << 23;  // 2^(exponent - 25)
            float scale = 0, value = 0;
            std::memcpy(&scale, &power, sizeof scale);
            value = whole * scale;
            std::memcpy(&pattern, &value, sizeof pattern);
        }
        pattern |= static_cast<std::uint32_t>(bits & 0x8000U) << 16;
        float result = 0;
        std::memcpy(&result, &pattern, sizeof result);
        return result;
    }
    explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
};

// Converts `count` contiguous elements; false when a value does not fit the target kind. The output may then hold
// anything, but nothing was written past `count` elements.
using Convert = bool (*)(const void* source, void* target, std::int64_t count);

// nullptr when there is no conversion that keeps the meaning: float to int, anything but bool to bool.
Convert find_convert(Kind source, Kind target);

}  // namespace quadrat
