// What kernels take and return. A ragged row is a pointer, a length and an element kind, wherever it came from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace quadrat {

// A pointer and a count. C++17 has no std::span, and the kernels need no more than this.
template <typename T>
struct Span {
    T* data = nullptr;
    std::int64_t size = 0;

    T& operator[](std::int64_t i) const { return data[i]; }
    T* begin() const { return data; }
    T* end() const { return data + size; }
};

// What a kernel returns instead of throwing: a code, and the place it speaks of.
enum class Code : std::uint8_t {
    ok,
    row_too_long,   // the row does not fit the width, or runs past the end of the output
    bad_start,      // a start is negative or past the end of the output
    no_conversion,  // the row's kind does not convert to the output's without loss of meaning
    out_of_range,   // a value does not fit the output's kind
    wrong_type,     // a list holds something that is not a number of the row's kind
    changed,        // a row changed its length or place while it was read
    bad_argument,   // a width, length or side that no output can have
    wrong_length,   // a row that goes with another is longer or shorter
    uneven,         // what is in a row is not a list as long as the first one of the column
};

struct Status {
    Code code = Code::ok;
    std::int64_t row = -1;
    std::int64_t position = -1;

    explicit operator bool() const { return code == Code::ok; }
};

// The numeric types a row or an output can hold. In Python a kind is its number, `_core.kinds` has the names.
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
    bfloat16,
};

inline constexpr int kind_count = 13;
inline constexpr const char* kind_names[kind_count] = {"bool",    "int8",    "uint8",   "int16",  "uint16",
                                                       "int32",   "uint32",  "int64",   "uint64", "float32",
                                                       "float64", "float16", "bfloat16"};

inline constexpr std::size_t item_size(Kind kind) {
    constexpr std::size_t sizes[kind_count] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 2, 2};
    return sizes[static_cast<int>(kind)];
}

inline constexpr bool is_float(Kind kind) { return kind >= Kind::float32; }

// Integers in the sense of the kernels: everything that holds whole numbers, bool excluded.
inline constexpr bool is_int(Kind kind) { return kind != Kind::bool_ && !is_float(kind); }

// A view of one row; it owns nothing. `stride` is the distance between elements in bytes, negative ones included.
struct Row {
    const void* data = nullptr;
    std::int64_t length = 0;
    std::int64_t stride = 0;
    Kind kind = Kind::int64;
};

enum class Side : std::uint8_t { right, left };

// Where row i of a padded output begins, in elements: padding on the right leaves the row at the front.
inline std::int64_t padded_start(std::int64_t i, std::int64_t length, std::int64_t width, Side side) {
    return i * width + (side == Side::left ? width - length : 0);
}

template <typename Integer>
Integer round_up(Integer value, Integer multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// Where rows begin that lie side by side, `least` places each at least, and where the last one ends: out[rows + 1].
inline void row_offsets(Span<const std::int64_t> lengths, std::int64_t least, std::int64_t* out) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < lengths.size; ++i) {
        out[i] = sum;
        sum += std::max(lengths[i], least);
    }
    out[lengths.size] = sum;
}

// How a kernel that may take seconds can be ended: now and then it calls a function of its caller's, which may throw.
class Watch {
public:
    using Look = void (*)();

    explicit Watch(Look look) : look_(look) {}

    // Counts steps of work, of some nanoseconds each, and looks where there have been many.
    void after(std::int64_t steps) {
        steps_ += steps;
        if (steps_ >= many) {
            steps_ = 0;
            look_();
        }
    }

    // Calls body(begin, end) for one stretch of 0 ... size after the other.
    template <typename Body>
    void stretches(std::int64_t size, const Body& body) {
        for (std::int64_t begin = 0; begin < size; begin += many) {
            const std::int64_t end = std::min(begin + many, size);
            body(begin, end);
            after(end - begin);
        }
    }

private:
    static constexpr std::int64_t many = std::int64_t{1} << 22;
    Look look_;
    std::int64_t steps_ = 0;
};

}  // namespace quadrat
