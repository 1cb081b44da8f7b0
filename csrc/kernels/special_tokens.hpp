// special_tokens: which ids are special, by a bit per id: a tokenizer may have hundreds of special tokens.
#pragma once

#include <cstdint>

#include "span.hpp"

namespace quadrat {

// out[i] = 1 where bit ids[i] of `set` is 1, else 0; ids that are negative or past the set are not special.
void special_tokens(const std::int64_t* ids, std::int64_t count, Span<const std::uint64_t> set, std::uint8_t* out);

}  // namespace quadrat
