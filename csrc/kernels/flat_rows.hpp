// What a flat batch has besides the tokens of its rows: what tells the rows apart, and padding.
#pragma once

#include "types.hpp"

namespace quadrat {

// Where in its row each token stands. out: `out_size` elements, at least as many as the rows have tokens. Row i gets
// start, start + 1, ...; places after the last row go on counting from its last token, because whoever infers the rows
// from where positions restart must not find one more.
Status position_ids(Span<const std::int64_t> lengths, std::int64_t start, std::int64_t* out, std::int64_t out_size);

// What seq_idx writes: `first` + i for the tokens of row i, `none` where there is no token.
struct RowNumbers {
    std::int32_t first, none;
};

// The number of each token's row. Row i: out[start[i]], `lengths[i]` tokens; rows rise and do not overlap.
template <typename T>
Status seq_idx(Span<const std::int64_t> start, const std::int64_t* lengths, RowNumbers numbers, T* out,
               std::int64_t out_size);

// Where the rows begin, and where the last one ends. out: lengths.size + 1 elements.
Status cu_seqlens(Span<const std::int64_t> lengths, std::int32_t* out);

// Writes `value`, one element of `kind`, to out[start[i]], so that no token is predicted from another row. Touches
// nothing else, and writes nothing for a start outside the output, `out_size` elements.
Status separate_rows(Span<const std::int64_t> start, Kind kind, const void* value, void* out, std::int64_t out_size);

// The padding between rows that have a place each. Row i has the place from start[i] to before start[i + 1]; `start`
// has one entry more than there are rows, the last at most `out_size`. Writes `value`, one element of `kind`, behind
// the first lengths[i] tokens of each place, and touches nothing else. out: `out_size` tokens of `inner` elements.
Status fill_ends(Span<const std::int64_t> start, const std::int64_t* lengths, std::int64_t inner, Kind kind,
                 const void* value, void* out, std::int64_t out_size);

}  // namespace quadrat
