// balance_batches: steps of one batch for each rank, whose costs are as near as they come: in a step, all ranks wait
// for the slowest. Batches are taken in the order of their costs, a step at a time.
//
// Where there are too few batches, some are split until there are enough: no row is repeated. Only where no batch has
// two rows any more are the cheapest batches repeated.
#pragma once

#include <cstdint>

#include "batch.hpp"
#include "span.hpp"
#include "status.hpp"
#include "watch.hpp"

namespace quadrat {

// How many batches `balance_batches` may have at once, and how many int64 it needs besides its outputs.
inline std::int64_t balance_batches_room(std::int64_t count, std::int64_t ranks, std::int64_t steps) {
    return count > steps * ranks ? count : steps * ranks;
}
inline std::int64_t balance_batches_scratch(std::int64_t count, std::int64_t ranks, std::int64_t steps) {
    return 4 * balance_batches_room(count, ranks, steps);
}

// lengths: of the rows, which `order` names. batches: `count` of them, in an array of balance_batches_room, because
// some may be split. steps: how many there will be; where batches fill more, the cheapest ones are dropped. out: room
// for [steps, ranks]. step_order: which step comes when, the costliest being number 0; null: steps come in the order of
// the first rows they have. In step t the batches go round by t ranks, so that no rank has the costliest batch of each.
// Code::bad_argument: where there are no batches, no ranks or no steps.
Status balance_batches(Span<const std::int64_t> lengths, const std::int64_t* order, const Budget& budget,
                       Batch* batches, std::int64_t count, std::int64_t ranks, std::int64_t steps,
                       const std::int64_t* step_order, std::int64_t* scratch, Batch* out, Watch& watch);

}  // namespace quadrat
