// position_ids: where in its row each token of a flat batch stands.
#pragma once

#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// out: `out_size` elements, at least as many as the rows have tokens. Row i gets start, start + 1, ...; places after
// the last row go on counting from its last token, because whoever infers the rows from where positions restart must
// not find one more.
Status position_ids(Span<const std::int64_t> lengths, std::int64_t start, std::int64_t* out, std::int64_t out_size);

}  // namespace quadrat
