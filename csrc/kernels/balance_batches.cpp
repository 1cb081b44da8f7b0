#include "balance_batches.hpp"

#include <algorithm>
#include <numeric>

#include "sort_rows.hpp"

namespace quadrat {
namespace {

// Batches, and their numbers from the costliest to the cheapest.
class Balance {
public:
    Balance(Span<const std::int64_t> lengths, const std::int64_t* order, const Budget& budget, Batch* batches,
            std::int64_t count, std::int64_t ranks, std::int64_t steps, std::int64_t* scratch, Watch& watch)
        : lengths_(lengths),
          order_(order),
          budget_(budget),
          watch_(watch),
          batches_(batches),
          count_(count),
          ranks_(ranks),
          steps_(steps),
          keys_(scratch),
          sorted_(keys_ + balance_batches_room(count, ranks, steps)),
          spare_(sorted_ + balance_batches_room(count, ranks, steps)),
          step_order_(spare_ + balance_batches_room(count, ranks, steps)) {
        sort();
    }

    // Drops the cheapest batches, or splits and repeats some.
    void fill_steps() {
        const std::int64_t wanted = steps_ * ranks_;
        if (count_ >= wanted) {
            count_ = wanted;
            return;
        }
        // Of a step that is not full, the batches it has; of each that is empty, as many as it takes.
        const std::int64_t pool = count_ % ranks_ + (wanted - count_) / ranks_ * ranks_;
        const std::int64_t missing = split(std::min(pool, count_), wanted - count_);
        sort();
        for (std::int64_t i = 0; i < missing; ++i) {
            sorted_[count_ + i] = sorted_[count_ - 1 - i % count_];
        }
        count_ += missing;
    }

    void write(const std::int64_t* step_order, Batch* out) {
        if (step_order == nullptr) {
            step_order = steps_by_first_row();
        }
        for (std::int64_t step = 0; step < steps_; ++step) {
            const std::int64_t* const numbers = sorted_ + step_order[step] * ranks_;
            for (std::int64_t i = 0; i < ranks_; ++i) {
                out[step * ranks_ + (i + step) % ranks_] = batches_[numbers[i]];
            }
        }
    }

private:
    Span<const std::int64_t> lengths_;
    const std::int64_t* order_;
    const Budget& budget_;
    Watch& watch_;
    Batch* batches_;
    std::int64_t count_;
    std::int64_t ranks_;
    std::int64_t steps_;
    std::int64_t* keys_;
    std::int64_t* sorted_;
    std::int64_t* spare_;
    std::int64_t* step_order_;

    void sort() {
        for (std::int64_t i = 0; i < count_; ++i) {
            keys_[i] = batches_[i].cost;
        }
        std::iota(sorted_, sorted_ + count_, std::int64_t{0});
        sort_rows(keys_, {sorted_, count_}, spare_, watch_);
    }

    std::int64_t cost(std::int64_t begin, std::int64_t end) const {
        Gathering rows;
        for (std::int64_t at = begin; at < end; ++at) {
            rows = rows.with(lengths_[order_[at]], budget_);
        }
        return rows.cost(budget_);
    }

    // Splits one batch at a time, the costliest of the `pool` cheapest ones; where none of them has two rows, the
    // cheapest of the others. Returns how many batches are missing still.
    std::int64_t split(std::int64_t pool, std::int64_t missing) {
        const auto cheaper = [this](std::int64_t one, std::int64_t other) {
            const std::int64_t first = batches_[one].cost, second = batches_[other].cost;
            return first != second ? first < second : one > other;
        };
        std::int64_t size = 0;  // of a heap, in spare_
        const auto add = [&](std::int64_t number) {
            if (batches_[number].rows() > 1) {
                spare_[size++] = number;
                std::push_heap(spare_, spare_ + size, cheaper);
            }
        };
        std::int64_t next = count_ - pool;
        std::for_each(sorted_ + next, sorted_ + count_, add);
        while (missing > 0) {
            while (size == 0 && next > 0) {
                add(sorted_[--next]);
            }
            if (size == 0) {
                break;
            }
            std::pop_heap(spare_, spare_ + size, cheaper);
            const std::int64_t number = spare_[--size];
            const auto [begin, end, all] = batches_[number];
            const std::int64_t middle = begin + (end - begin + 1) / 2;
            batches_[number] = {begin, middle, cost(begin, middle)};
            batches_[count_] = {middle, end, cost(middle, end)};
            add(number);
            add(count_++);
            --missing;
            watch_.after(end - begin);
        }
        return missing;
    }

    const std::int64_t* steps_by_first_row() {
        for (std::int64_t step = 0; step < steps_; ++step) {
            std::int64_t first = batches_[sorted_[step * ranks_]].begin;
            for (std::int64_t i = 1; i < ranks_; ++i) {
                first = std::min(first, batches_[sorted_[step * ranks_ + i]].begin);
            }
            keys_[step] = lengths_.size - first;
        }
        std::iota(step_order_, step_order_ + steps_, std::int64_t{0});
        sort_rows(keys_, {step_order_, steps_}, spare_, watch_);
        return step_order_;
    }
};

}  // namespace

Status balance_batches(Span<const std::int64_t> lengths, const std::int64_t* order, const Budget& budget,
                       Batch* batches, std::int64_t count, std::int64_t ranks, std::int64_t steps,
                       const std::int64_t* step_order, std::int64_t* scratch, Batch* out, Watch& watch) {
    if (!budget.valid() || count < 1 || ranks < 1 || steps < 1) {
        return {Code::bad_argument};
    }
    Balance balance(lengths, order, budget, batches, count, ranks, steps, scratch, watch);
    balance.fill_steps();
    balance.write(step_order, out);
    return {};
}

}  // namespace quadrat
