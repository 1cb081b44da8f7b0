// Tokens by their numbers, and to them. Numbers that follow each other, for example those of an attention mask, are
// copied together. Another thread may change them: each is checked where it is used.
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

// The way back from take_tokens, and its derivative: zeros where no token goes. Where the numbers rise, nothing is
// written twice.
// values: indices.size tokens of `token` bytes. out: `size` tokens. Of several for one place the last stays. An index
// that is no place of the output is reported, with its place in `row`; then `out` is not complete.
Status put_tokens(const void* values, std::size_t token, Span<const std::int64_t> indices, void* out,
                  std::int64_t size);

}  // namespace quadrat
