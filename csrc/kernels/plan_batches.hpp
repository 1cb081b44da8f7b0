// plan_batches: rows of like lengths together, in batches that cost no more than a budget.
//
// Rows are sorted by length within windows of the order they come in, one window from the longest to the shortest and
// the next one back. Where two windows meet, rows are of like lengths, too: batches run on from window to window, and
// only the last one is left half empty.
#pragma once

#include <cstdint>

#include "batch.hpp"
#include "span.hpp"
#include "status.hpp"
#include "watch.hpp"

namespace quadrat {

// order: the rows, which are sorted in place. spare: room for a window of them. Each batch takes rows as long as it
// stays within the budget; a row above the budget is a batch of its own. batches: room for one per row.
// Code::bad_argument: for a budget or a window that no batch can have. Code::out_of_range names a row whose length is
// negative or above `most_budget`.
Status plan_batches(Span<const std::int64_t> lengths, const Budget& budget, std::int64_t window,
                    Span<std::int64_t> order, std::int64_t* spare, Batch* batches, std::int64_t* count, Watch& watch);

}  // namespace quadrat
