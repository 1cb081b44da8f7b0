// balance_batches: steps of one batch for each rank, whose costs are as near as they come: in a step, all ranks wait
// for the slowest. Batches are taken in the order of their costs, a step at a time.
//
// Batches that are left over, too few for a step, are split until there are enough: no row is repeated or dropped. Only
// where no batch has two rows any more are the cheapest batches repeated.
#pragma once

#include <cstdint>

#include "batch.hpp"
#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// How many int64 `balance_batches` needs besides its outputs.
inline std::int64_t balance_batches_scratch(std::int64_t batches, std::int64_t ranks) { return 4 * (batches + ranks); }

// lengths: of the rows of `order`, in this order's numbers. batches: `count` of them, and room for `ranks` more, which
// are written where some are split. out: room for count + ranks, [steps, ranks]; `steps` are count / ranks, rounded up,
// or down with drop_last, which drops the cheapest batches instead of splitting any. step_order: which step comes when,
// the costliest being number 0; null: steps come in the order of the first rows they have. In step t the batches go
// round by t ranks, so that no rank has the costliest batch of each.
// Code::bad_argument: where there are no batches or no ranks.
Status balance_batches(Span<const std::int64_t> lengths, const std::int64_t* order, const Budget& budget,
                       Batch* batches, std::int64_t count, std::int64_t ranks, bool drop_last,
                       const std::int64_t* step_order, std::int64_t* scratch, Batch* out);

}  // namespace quadrat
