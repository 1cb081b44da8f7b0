// plan_shapes: the few widths for batches that compute the fewest tokens.
//
// A row goes to the least width that it fits, and a batch is filled to all rows of its width. The optimum follows from
// the number of rows of each width alone, by dynamic programming. More widths than the best plan of any number of them
// has are not looked for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "types.hpp"

namespace quadrat {

struct Widths {
    Span<const std::int64_t> widths;  // rising
    const std::int64_t* counts;       // rows whose least width this is
    const std::int64_t* rows;         // of a batch of this width
};

// For how many widths at most there is memory, of 32 MiB.
inline std::int64_t plan_shapes_layers(std::int64_t widths, std::int64_t most) {
    return std::min(most, std::max<std::int64_t>(8, (std::int64_t{1} << 22) / (widths + 1)));
}

// How many int64 `plan_shapes` needs besides its outputs.
inline std::int64_t plan_shapes_scratch(std::int64_t widths, std::int64_t most) {
    const std::int64_t layers = plan_shapes_layers(widths, most);
    return (layers + 6) * (widths + 1);
}

// costs: the tokens computed with at most 1, 2, ... widths. chosen: of at most chosen.size widths, the number of each,
// rising; -1 after the last. No more than costs.size. The widest is always among them.
// Code::bad_argument: without widths, costs or chosen. Code::out_of_range names a width that does not rise, a negative
// count, a batch without rows, or widths of which there may be more than 2^61 tokens. Code::row_too_long: for more
// widths than there is memory for, which it names, where so many would be of use.
Status plan_shapes(const Widths& given, std::int64_t* scratch, Span<std::int64_t> costs, Span<std::int64_t> chosen,
                   Watch& watch);

}  // namespace quadrat
