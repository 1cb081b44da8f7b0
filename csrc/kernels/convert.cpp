#include "convert.hpp"

#include <limits>
#include <type_traits>

#include "bytes.hpp"
#include "simd.hpp"

namespace quadrat {
namespace {

template <typename T>
constexpr bool is_negative(T value) {
    if constexpr (std::is_signed_v<T>) {
        return value < T{0};
    } else {
        return false;
    }
}

// A value fits when it survives the way back with its sign.
template <typename S, typename T>
constexpr bool fits_into(S source, T value) {
    using TL = std::numeric_limits<T>;
    using SL = std::numeric_limits<S>;
    if constexpr (!std::is_integral_v<T> || (TL::digits >= SL::digits && (TL::is_signed || !SL::is_signed))) {
        return true;
    } else {
        return (static_cast<S>(value) == source) & (is_negative(value) == is_negative(source));
    }
}

template <typename T, typename S>
T number(S value) {
    if constexpr (std::is_arithmetic_v<T>) {
        return static_cast<T>(value);
    } else {
        return T::nearest(static_cast<float>(value));
    }
}

// Stores of structs keep loops from vectorising.
template <typename T>
void store(T value, T* out) {
    if constexpr (std::is_arithmetic_v<T>) {
        *out = value;
    } else {
        out->bits = value.bits;
    }
}

// Not a template: target_clones needs functions. The check has no branch, so the loop vectorises.
#define QUADRAT_CONVERT(S, T)                                                                        \
    QUADRAT_CLONES bool convert_##S##_to_##T(const void* source, void* target, std::int64_t count) { \
        const S##_t* const in = static_cast<const S##_t*>(source);                                   \
        T##_t* const out = static_cast<T##_t*>(target);                                              \
        bool fits = true;                                                                            \
        for (std::int64_t i = 0; i < count; ++i) {                                                   \
            const T##_t value = number<T##_t>(in[i]);                                                \
            fits &= fits_into(in[i], value);                                                         \
            store(value, out + i);                                                                   \
        }                                                                                            \
        return fits;                                                                                 \
    }

using std::int8_t, std::int16_t, std::int32_t, std::int64_t;
using std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t;
using float32_t = float;
using float64_t = double;
using float16_t = Half;
using bfloat16_t = Brain;

#define QUADRAT_TO_FLOATS(F, S) F(S, float32) F(S, float64) F(S, float16) F(S, bfloat16)
#define QUADRAT_TO_ALL(F, S) \
    F(S, int8)               \
    F(S, uint8)              \
    F(S, int16) F(S, uint16) F(S, int32) F(S, uint32) F(S, int64) F(S, uint64) QUADRAT_TO_FLOATS(F, S)
QUADRAT_TO_ALL(QUADRAT_CONVERT, int8)
QUADRAT_TO_ALL(QUADRAT_CONVERT, uint8)
QUADRAT_TO_ALL(QUADRAT_CONVERT, int16)
QUADRAT_TO_ALL(QUADRAT_CONVERT, uint16)
QUADRAT_TO_ALL(QUADRAT_CONVERT, int32)
QUADRAT_TO_ALL(QUADRAT_CONVERT, uint32)
QUADRAT_TO_ALL(QUADRAT_CONVERT, int64)
QUADRAT_TO_ALL(QUADRAT_CONVERT, uint64)
QUADRAT_TO_FLOATS(QUADRAT_CONVERT, float32)
QUADRAT_TO_FLOATS(QUADRAT_CONVERT, float64)
QUADRAT_TO_FLOATS(QUADRAT_CONVERT, float16)
QUADRAT_TO_FLOATS(QUADRAT_CONVERT, bfloat16)

#define QUADRAT_NAME(S, T) , convert_##S##_to_##T
#define QUADRAT_INT_ROW(S) {nullptr QUADRAT_TO_ALL(QUADRAT_NAME, S)}
#define QUADRAT_FLOAT_ROW(S) \
    {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr QUADRAT_TO_FLOATS(QUADRAT_NAME, S)}

constexpr Convert table[kind_count][kind_count] = {
    QUADRAT_INT_ROW(uint8),  // bool: one byte, 0 or 1, as NumPy and torch store it
    QUADRAT_INT_ROW(int8),      QUADRAT_INT_ROW(uint8),     QUADRAT_INT_ROW(int16),     QUADRAT_INT_ROW(uint16),
    QUADRAT_INT_ROW(int32),     QUADRAT_INT_ROW(uint32),    QUADRAT_INT_ROW(int64),     QUADRAT_INT_ROW(uint64),
    QUADRAT_FLOAT_ROW(float32), QUADRAT_FLOAT_ROW(float64), QUADRAT_FLOAT_ROW(float16), QUADRAT_FLOAT_ROW(bfloat16),
};

template <int bytes>
bool copy(const void* source, void* target, std::int64_t count) {
    copy_bytes(target, source, bytes_of(count, bytes));
    return true;
}

}  // namespace

Convert find_convert(Kind source, Kind target) {
    if (source == target) {
        constexpr Convert copies[9] = {nullptr, copy<1>, copy<2>, nullptr, copy<4>, nullptr, nullptr, nullptr, copy<8>};
        return copies[item_size(source)];
    }
    return table[static_cast<int>(source)][static_cast<int>(target)];
}

}  // namespace quadrat
