// take_tokens: tokens by their numbers, one after the other. Numbers that follow each other, as those of an attention
// mask do, are copied together. Another thread may change them: each is checked where it is used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// values: `size` tokens of `token` bytes. out: indices.size tokens. An index that is not a token's is reported, with
// its place in `row`.
Status take_tokens(const void* values, std::int64_t size, std::size_t token, Span<const std::int64_t> indices,
                   void* out);

// The end of the run of numbers, each one more than the last, that begins with `first` at `at`.
std::int64_t end_of_run(Span<const std::int64_t> indices, std::int64_t at, std::int64_t first);

}  // namespace quadrat
