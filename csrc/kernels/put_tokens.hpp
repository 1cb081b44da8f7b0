// put_tokens: tokens to their numbers, zeros where there is none: the way back from take_tokens, and its derivative.
// Where the numbers rise, as those of an attention mask do, nothing is written twice. Another thread may change them:
// each is checked where it is used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// values: indices.size tokens of `token` bytes. out: `size` tokens. Of several for one place the last stays. An index
// that is no place of the output is reported, with its place in `row`; then `out` is not complete.
Status put_tokens(const void* values, std::size_t token, Span<const std::int64_t> indices, void* out,
                  std::int64_t size);

}  // namespace quadrat
