// document_ids: an attention mask that tells documents apart, as models of packed rows read it.
#pragma once

#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// Row i begins at start[i]; `start` rises, and has an entry for each row. out: `out_size` elements; i + 1 for the
// tokens of row i, 0 elsewhere.
Status document_ids(Span<const std::int64_t> start, const std::int64_t* lengths, std::int64_t* out,
                    std::int64_t out_size);

}  // namespace quadrat
