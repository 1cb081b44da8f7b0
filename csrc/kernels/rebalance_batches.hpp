// rebalance_batches: how many rows each batch of an optimizer step gets, so that all batches cost about the same. It is
// the search of BatchRebalanceSampler in transformers, one move of a row from the costliest batch to the cheapest at a
// time, with the same floating-point operations in the same order: equal costs decide which batch is chosen.
#pragma once

#include "span.hpp"
#include "status.hpp"

namespace quadrat {

// 128 bits that stand for the numbers of rows of all batches.
struct CountsKey {
    std::uint64_t low = 0, high = 0;
};

struct BalanceOptions {
    std::int64_t ranks = 1;  // batches side by side make a slot
    double coefficient = 0;  // of the quadratic term in a batch's cost
    std::int64_t moves = 0;  // at most
    // Puts members of a set in the order in which the reference's language goes through it.
    void (*order_of_set)(Span<std::int64_t> members) = nullptr;
};

// Memory for one call; each array has a place for each batch, `seen` at least twice as many as there are moves, a power
// of two, all zero.
struct BalanceScratch {
    double* costs;
    std::int64_t *counts, *members;
    std::uint8_t *frozen, *is_member;
    Span<CountsKey> seen;
};

// lengths: of the rows of a step, from long to short, each 0 or more. counts[i]: the rows of batch i; batches take them
// in turn. ranking: the batches from the costliest to the cheapest. Code::bad_argument: there are fewer rows than
// batches, the sizes of arrays do not go together, or a cost is beyond int64.
Status rebalance_batches(Span<const std::int64_t> lengths, const BalanceOptions& options, const BalanceScratch& scratch,
                         Span<std::int64_t> counts, Span<std::int64_t> ranking);

}  // namespace quadrat
