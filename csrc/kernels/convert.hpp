// Runs of elements from one kind to another: the inner loops of copy_rows.
#pragma once

#include <cstdint>

#include "types.hpp"

namespace quadrat {

// Converts `count` contiguous elements; false when a value does not fit the target kind. The output may then hold
// anything, but nothing was written past `count` elements.
using Convert = bool (*)(const void* source, void* target, std::int64_t count);

// nullptr when there is no conversion that keeps the meaning: float to int, anything but bool to bool.
Convert find_convert(Kind source, Kind target);

}  // namespace quadrat
