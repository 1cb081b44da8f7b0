// Batches of rows within a budget, and steps of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "types.hpp"

namespace quadrat {

// Rows number `begin` to before `end` of an order of rows.
struct Batch {
    std::int64_t begin;
    std::int64_t end;
    std::int64_t cost;

    std::int64_t rows() const { return end - begin; }
};

// What a batch may cost. No budget and no length is above this, so that sums of two do not overflow.
inline constexpr std::int64_t most_budget = std::int64_t{1} << 61;

struct Budget {
    std::int64_t tokens;
    std::int64_t rows;
    std::int64_t multiple_of;  // the width of a padded batch is one of these, the length of a flat one too
    bool padded;               // rows times the longest; else the sum of lengths

    bool valid() const {
        return tokens >= 1 && tokens <= most_budget && rows >= 1 && multiple_of >= 1 && multiple_of <= tokens;
    }
    std::int64_t whole_tokens() const { return tokens - tokens % multiple_of; }
    std::int64_t rounded(std::int64_t length) const { return round_up(length, multiple_of); }
};

// Rows that are being gathered into a batch.
struct Gathering {
    std::int64_t rows = 0;
    std::int64_t longest = 0;
    std::int64_t total = 0;
    std::int64_t most_rows = std::numeric_limits<std::int64_t>::max();  // that may be as wide as the longest

    Gathering with(std::int64_t length, const Budget& budget) const {
        Gathering larger{rows + 1, longest, total + length, most_rows};
        if (length > longest) {
            larger.longest = length;
            larger.most_rows = budget.tokens / budget.rounded(length);
        }
        return larger;
    }

    bool within(const Budget& budget) const {
        return rows <= budget.rows && (budget.padded ? rows <= most_rows : total <= budget.whole_tokens());
    }

    // Of one row, or of rows within the budget.
    std::int64_t cost(const Budget& budget) const {
        return budget.padded ? rows * budget.rounded(longest) : budget.rounded(total);
    }
};

// Rows of like lengths together, in batches that cost no more than a budget.
// order: the rows, which are sorted in place. spare: room for a window of them. Each batch takes rows as long as it
// stays within the budget; a row above the budget is a batch of its own. batches: room for one per row.
// Code::bad_argument: for a budget or a window that no batch can have. Code::out_of_range names a row whose length is
// negative or above `most_budget`.
//
// Rows are sorted by length within windows of the order they come in, one window from the longest to the shortest and
// the next one back. Where two windows meet, rows are of like lengths, too: batches run on from window to window, and
// only the last one is left half empty.
Status plan_batches(Span<const std::int64_t> lengths, const Budget& budget, std::int64_t window,
                    Span<std::int64_t> order, std::int64_t* spare, Batch* batches, std::int64_t* count, Watch& watch);

// How many batches `balance_batches` may have at once, and how many int64 it needs besides its outputs.
inline std::int64_t balance_batches_room(std::int64_t count, std::int64_t ranks, std::int64_t steps) {
    return std::max(count, steps * ranks);
}
inline std::int64_t balance_batches_scratch(std::int64_t count, std::int64_t ranks, std::int64_t steps) {
    return 4 * balance_batches_room(count, ranks, steps);
}

// Steps of one batch for each rank, whose costs are as near as they come: in a step, all ranks wait for the slowest.
// lengths: of the rows, which `order` names. batches: `count` of them, in an array of balance_batches_room, because
// some may be split. steps: how many there will be; where batches fill more, the cheapest ones are dropped. out: room
// for [steps, ranks]. step_order: which step comes when, the costliest being number 0; null: steps come in the order of
// the first rows they have. In step t the batches go round by t ranks, so that no rank has the costliest batch of each.
// Code::bad_argument: where there are no batches, no ranks or no steps.
//
// Batches are taken in the order of their costs, a step at a time. Where there are too few, some are split until there
// are enough: no row is repeated. Only where no batch has two rows any more are the cheapest batches repeated.
Status balance_batches(Span<const std::int64_t> lengths, const std::int64_t* order, const Budget& budget,
                       Batch* batches, std::int64_t count, std::int64_t ranks, std::int64_t steps,
                       const std::int64_t* step_order, std::int64_t* scratch, Batch* out, Watch& watch);

}  // namespace quadrat
