// seq_idx: the number of each token's row, in a flat batch whose rows may have gaps between them.
#pragma once

#include <cstdint>

#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// What is written: `first` + i for the tokens of row i, `none` where there is no token.
struct RowNumbers {
    std::int32_t first, none;
};

// Row i: out[start[i]], `lengths[i]` tokens; rows rise and do not overlap. T: int32 or int64.
template <typename T>
Status seq_idx(Span<const std::int64_t> start, const std::int64_t* lengths, RowNumbers numbers, T* out,
               std::int64_t out_size);

}  // namespace quadrat
