// What a kernel returns instead of throwing: a code, and the place it speaks of.
#pragma once

#include <cstdint>

namespace quadrat {

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

}  // namespace quadrat
