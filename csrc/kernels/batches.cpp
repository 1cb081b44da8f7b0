#include "batches.hpp"

#include <algorithm>
#include <numeric>

#include "order_rows.hpp"
#include "prefetch.hpp"

namespace quadrat {
namespace {

// Batches that rows are gathered into, one after the other.
struct Batches {
    const Budget& budget;
    Batch* out;
    Gathering batch = {};
    std::int64_t begin = 0, count = 0;

    void add(std::int64_t length) {
        Gathering larger = batch.with(length, budget);
        if (batch.rows > 0 && !larger.within(budget)) {
            close();
            larger = batch.with(length, budget);
        }
        batch = larger;
    }

    void close() {
        out[count++] = {begin, begin + batch.rows, batch.cost(budget)};
        begin += batch.rows;
        batch = {};
    }
};

// Batches, and their numbers from the costliest to the cheapest. keys, spare: for sorting.
struct Balance {
    Span<const std::int64_t> lengths;
    const std::int64_t* order;
    const Budget& budget;
    Batch* batches;
    std::int64_t count, ranks, steps;
    std::int64_t *keys, *sorted, *spare;
    Watch& watch;

    void sort() {
        for (std::int64_t i = 0; i < count; ++i) {
            keys[i] = batches[i].cost;
        }
        std::iota(sorted, sorted + count, std::int64_t{0});
        sort_rows(keys, {sorted, count}, spare, watch);
    }

    // Drops the cheapest batches, or splits and repeats some.
    void fill_steps() {
        const std::int64_t wanted = steps * ranks;
        if (count >= wanted) {
            count = wanted;
            return;
        }
        // Of a step that is not full, the batches it has; of each that is empty, as many as it takes.
        const std::int64_t pool = count % ranks + (wanted - count) / ranks * ranks;
        const std::int64_t missing = split(std::min(pool, count), wanted - count);
        sort();
        for (std::int64_t i = 0; i < missing; ++i) {
            sorted[count + i] = sorted[count - 1 - i % count];
        }
        count += missing;
    }

    std::int64_t cost(std::int64_t begin, std::int64_t end) const {
        Gathering rows;
        for (std::int64_t at = begin; at < end; ++at) {
            rows = rows.with(lengths[order[at]], budget);
        }
        return rows.cost(budget);
    }

    // Splits one batch at a time, the costliest of the `pool` cheapest ones; where none of them has two rows, the
    // cheapest of the others. Returns how many batches are missing still.
    std::int64_t split(std::int64_t pool, std::int64_t missing) {
        const auto cheaper = [this](std::int64_t a, std::int64_t b) {
            const std::int64_t first = batches[a].cost, second = batches[b].cost;
            return first != second ? first < second : a > b;
        };
        std::int64_t size = 0;  // of a heap, in `spare`
        const auto add = [&](std::int64_t number) {
            if (batches[number].rows() > 1) {
                spare[size++] = number;
                std::push_heap(spare, spare + size, cheaper);
            }
        };
        std::int64_t next = count - pool;
        std::for_each(sorted + next, sorted + count, add);
        while (missing > 0) {
            while (size == 0 && next > 0) {
                add(sorted[--next]);
            }
            if (size == 0) {
                break;
            }
            std::pop_heap(spare, spare + size, cheaper);
            const std::int64_t number = spare[--size];
            const auto [begin, end, all] = batches[number];
            const std::int64_t middle = begin + (end - begin + 1) / 2;
            batches[number] = {begin, middle, cost(begin, middle)};
            batches[count] = {middle, end, cost(middle, end)};
            add(number);
            add(count++);
            --missing;
            watch.after(end - begin);
        }
        return missing;
    }

    void order_by_first_row(std::int64_t* step_order) const {
        for (std::int64_t step = 0; step < steps; ++step) {
            std::int64_t first = batches[sorted[step * ranks]].begin;
            for (std::int64_t i = 1; i < ranks; ++i) {
                first = std::min(first, batches[sorted[step * ranks + i]].begin);
            }
            keys[step] = lengths.size - first;
        }
        std::iota(step_order, step_order + steps, std::int64_t{0});
        sort_rows(keys, {step_order, steps}, spare, watch);
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
    Batches gathered{budget, batches};
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
                gathered.add(lengths[rows[i]]);
            }
        });
        first += rows.size;
    }
    if (gathered.batch.rows > 0) {
        gathered.close();
    }
    *count = gathered.count;
    return {};
}

Status balance_batches(Span<const std::int64_t> lengths, const std::int64_t* order, const Budget& budget,
                       Batch* batches, std::int64_t count, std::int64_t ranks, std::int64_t steps,
                       const std::int64_t* step_order, std::int64_t* scratch, Batch* out, Watch& watch) {
    if (!budget.valid() || count < 1 || ranks < 1 || steps < 1) {
        return {Code::bad_argument};
    }
    const std::int64_t room = balance_batches_room(count, ranks, steps);
    std::int64_t *const sorted = scratch + room, *const spare = sorted + room, *const by_first_row = spare + room;
    Balance balance{lengths, order, budget, batches, count, ranks, steps, scratch, sorted, spare, watch};
    balance.sort();
    balance.fill_steps();
    if (step_order == nullptr) {
        balance.order_by_first_row(by_first_row);
        step_order = by_first_row;
    }
    for (std::int64_t step = 0; step < steps; ++step) {
        for (std::int64_t i = 0; i < ranks; ++i) {
            out[step * ranks + (i + step) % ranks] = batches[sorted[step_order[step] * ranks + i]];
        }
    }
    return {};
}

}  // namespace quadrat
