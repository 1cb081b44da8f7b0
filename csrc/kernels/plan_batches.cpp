#include "plan_batches.hpp"

#include <algorithm>

#include "prefetch.hpp"
#include "sort_rows.hpp"

namespace quadrat {
namespace {

// Batches that rows are gathered into, one after the other.
class Batches {
public:
    Batches(const Budget& budget, Batch* out) : budget_(budget), out_(out) {}

    void add(std::int64_t length) {
        Gathering more = batch_.with(length, budget_);
        if (batch_.rows > 0 && !more.within(budget_)) {
            close();
            more = batch_.with(length, budget_);
        }
        batch_ = more;
    }

    // Ends the last batch. Returns how many there are.
    std::int64_t finish() {
        if (batch_.rows > 0) {
            close();
        }
        return count_;
    }

private:
    const Budget& budget_;
    Batch* out_;
    Gathering batch_;
    std::int64_t begin_ = 0;
    std::int64_t count_ = 0;

    void close() {
        out_[count_++] = {begin_, begin_ + batch_.rows, batch_.cost(budget_)};
        begin_ += batch_.rows;
        batch_ = {};
    }
};

}  // namespace

Status plan_batches(Span<const std::int64_t> lengths, const Budget& budget, std::int64_t window,
                    Span<std::int64_t> order, std::int64_t* spare, Batch* batches, std::int64_t* count, Watch& watch) {
    if (!budget.valid() || window < 1 || order.size != lengths.size) {
        return {Code::bad_argument};
    }
    for (std::int64_t row = 0; row < lengths.size; ++row) {
        if (lengths[row] < 0 || lengths[row] > most_budget) {
            return {Code::out_of_range, row};
        }
    }
    Batches found(budget, batches);
    bool rising = false;
    for (std::int64_t first = 0; first < order.size; rising = !rising) {
        const Span<std::int64_t> rows{order.data + first, std::min(window, order.size - first)};
        sort_rows(lengths.data, rows, spare, watch);
        if (rising) {
            std::reverse(rows.begin(), rows.end());
        }
        watch.stretches(rows.size, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {  // while the window is in the cache
                prefetch(lengths.data + rows[std::min(i + 32, rows.size - 1)]);
                found.add(lengths[rows[i]]);
            }
        });
        first += rows.size;
    }
    *count = found.finish();
    return {};
}

}  // namespace quadrat
