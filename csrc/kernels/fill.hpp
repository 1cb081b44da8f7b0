// Runs of one value: the inner loops of fill_gaps and attention_mask.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quadrat {

// Writes `count` copies of the element at `value`.
using Fill = void (*)(void* out, std::int64_t count, const void* value);

// item: 1, 2, 4 or 8 bytes; null for any other.
Fill find_fill(std::size_t item);

}  // namespace quadrat
