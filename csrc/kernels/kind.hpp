// Element kinds: the numeric types a row or an output can hold. In Python a kind is its number, `_core.kinds` has the
// names.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quadrat {

enum class Kind : std::uint8_t {
    bool_,
    int8,
    uint8,
    int16,
    uint16,
    int32,
    uint32,
    int64,
    uint64,
    float32,
    float64,
    float16,
};

inline constexpr int kind_count = 12;
inline constexpr const char* kind_names[kind_count] = {"bool",   "int8",  "uint8",  "int16",   "uint16",  "int32",
                                                       "uint32", "int64", "uint64", "float32", "float64", "float16"};

inline constexpr std::size_t item_size(Kind kind) {
    constexpr std::size_t sizes[kind_count] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 2};
    return sizes[static_cast<int>(kind)];
}

inline constexpr bool is_float(Kind kind) { return kind >= Kind::float32; }

// Integers in the sense of the kernels: everything that holds whole numbers, bool excluded.
inline constexpr bool is_int(Kind kind) { return kind != Kind::bool_ && !is_float(kind); }

}  // namespace quadrat
