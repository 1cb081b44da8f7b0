#include "plan_shapes.hpp"

#include <algorithm>

#include "batches.hpp"
#include "simd.hpp"

namespace quadrat {
namespace {

QUADRAT_CLONES void keep_least(const std::int64_t* values, std::int64_t less, std::int64_t count, std::int64_t* least) {
    for (std::int64_t i = 0; i < count; ++i) {
        least[i] = std::min(least[i], values[i] - less);
    }
}

// A place p from 0 to n is the end of the widths below it, the last of which is that of p. Those between two chosen
// places go to the width of the upper one.
struct Search {
    static constexpr std::int64_t none = std::int64_t{1} << 62;  // more than any plan computes
    std::int64_t end;                                            // the last place
    std::int64_t layers;                                         // numbers of widths at most, for which there is memory
    std::int64_t* rows;
    Watch& watch;
    std::int64_t* widths = rows + end + 1;
    std::int64_t* batches = widths + end + 1;  // how many rows a batch of this width has
    std::int64_t* own = batches + end + 1;     // the tokens of all rows below, each as wide as its own width
    // What a plan of the rows below a place may compute less than so that the place may be in a best plan, negated.
    std::int64_t* least = own + end + 1;
    std::int64_t* bounds = least + end + 1;  // by the number of widths: what the best plan computes at most
    // By the number of widths, at most, and by place: the tokens of the best plan of all rows below, and of all above,
    // without rows that fill batches; of those below, later with them, and none where no best plan has this place; and
    // the next place below in that plan.
    std::int64_t* below = bounds + layers + 1;
    std::int64_t* above = below + (layers + 1) * (end + 1);
    std::int64_t* before = above + (layers + 1) * (end + 1);

    void read(const Widths& given) {
        rows[0] = widths[0] = batches[0] = own[0] = 0;
        for (std::int64_t i = 0; i < end; ++i) {
            rows[i + 1] = rows[i] + given.counts[i];
            widths[i + 1] = given.widths[i];
            batches[i + 1] = given.rows[i];
            own[i + 1] = own[i] + given.counts[i] * given.widths[i];
        }
    }

    // How many widths a best plan of any number of widths has.
    std::int64_t find_number() {
        std::fill_n(below, end + 1, 0);
        std::fill_n(least, end + 1, -none);
        find(below, below, 1);
        std::int64_t number = 0;
        for (std::int64_t at = end; at > 0; at = layer(before, 1)[at]) {
            ++number;
        }
        return number;
    }

    // Finds the best plans of up to `most` widths. Writes that of `chosen.size`, at most as many.
    void run(std::int64_t most, std::int64_t* costs, Span<std::int64_t> chosen) {
        std::fill_n(below, end + 1, none);
        std::fill_n(above, end + 1, none);
        *below = above[end] = 0;
        for (std::int64_t count = 1; count <= most; ++count) {
            relax<false>(layer(below, count - 1), layer(below, count), layer(before, count), 0, end, 0, end);
            relax<true>(layer(above, count - 1), layer(above, count), nullptr, 0, end, 0, end);
            bounds[count] = bound(count);
        }
        const std::int64_t wanted = std::min(chosen.size, most);
        const bool is_known = !differs(wanted);
        if (is_known) {
            write(wanted, chosen);
        }
        for (std::int64_t count = 1; count <= most; ++count) {
            find_least(count, most);
            find(layer(below, count - 1), layer(below, count), count);
            costs[count - 1] = std::min(bounds[count], layer(below, count)[end]);
        }
        if (!is_known) {
            write(wanted, chosen);
        }
    }

    std::int64_t* layer(std::int64_t* table, std::int64_t count) const { return table + count * (end + 1); }

    // The tokens of all rows between two places, and of their batches.
    std::int64_t tokens(std::int64_t next, std::int64_t at) const { return (rows[at] - rows[next]) * widths[at]; }
    std::int64_t computed(std::int64_t next, std::int64_t at) const {
        return (rows[at] - rows[next] + batches[at] - 1) / batches[at] * batches[at] * widths[at];
    }

    // The tokens of plans with one more width, for places from first to last, whose next ones lie from low to high: the
    // next place rises with the place, because a row costs more the wider its width is.
    template <bool upward>
    void relax(const std::int64_t* known, std::int64_t* made, std::int64_t* places, std::int64_t first,
               std::int64_t last, std::int64_t low, std::int64_t high) {
        if (first > last) {
            return;
        }
        const std::int64_t middle = (first + last) / 2, lowest = upward ? std::max(low, middle) : low;
        std::int64_t best = lowest, fewest = none;
        for (std::int64_t next = lowest; next <= (upward ? high : std::min(high, middle)); ++next) {
            const std::int64_t cost = known[next] + (upward ? tokens(middle, next) : tokens(next, middle));
            if (cost < fewest) {
                fewest = cost;
                best = next;
            }
        }
        watch.after(high - low + 1);
        made[middle] = fewest;
        if (!upward) {
            places[middle] = best;
        }
        relax<upward>(known, made, places, first, middle - 1, low, best);
        relax<upward>(known, made, places, middle + 1, last, best, high);
    }

    // What the plan of so many widths computes that is best without rows that fill batches.
    std::int64_t bound(std::int64_t count) const {
        std::int64_t sum = 0;
        for (std::int64_t at = end; at > 0; --count) {
            const std::int64_t next = layer(before, count)[at];
            sum += next < at ? computed(next, at) : 0;
            at = next;
        }
        return sum;
    }

    // Whether the best plan of so many widths may be another one than without rows that fill batches.
    bool differs(std::int64_t count) const { return bounds[count] > layer(above, count)[0]; }

    // Of all numbers of widths up to `most` that differ, what the rows above a place leave to those below, at most.
    void find_least(std::int64_t count, std::int64_t most) {
        std::fill_n(least, end + 1, none);
        for (std::int64_t all = count; all <= most; ++all) {
            if (differs(all)) {
                keep_least(layer(above, all - count), bounds[all], end + 1, least);
                watch.after(end);
            }
        }
    }

    // Finds what the best plans of at most so many widths compute, of the rows below each place that may be in one.
    void find(const std::int64_t* known, std::int64_t* made, std::int64_t count) {
        std::int64_t* const places = layer(before, count);
        for (std::int64_t at = 1; at <= end; ++at) {
            if (made[at] + least[at] > 0) {
                made[at] = none;
                continue;
            }
            made[at] = computed(0, at);
            places[at] = 0;
            // Places that are further below have more tokens of their own.
            std::int64_t next = at - 1;
            for (; next > 0 && own[next] + tokens(next, at) < made[at]; --next) {
                if (known[next] + tokens(next, at) < made[at] && known[next] + computed(next, at) < made[at]) {
                    made[at] = known[next] + computed(next, at);
                    places[at] = next;
                }
            }
            watch.after(at - next);
        }
    }

    void write(std::int64_t count, Span<std::int64_t> chosen) const {
        std::int64_t found = 0;
        for (std::int64_t at = end; at > 0; --count) {
            const std::int64_t next = layer(before, count)[at];
            if (next < at) {
                chosen[found++] = at - 1;
            }
            at = next;
        }
        std::reverse(chosen.begin(), chosen.begin() + found);
        std::fill(chosen.begin() + found, chosen.end(), -1);
    }
};

}  // namespace

Status plan_shapes(const Widths& given, std::int64_t* scratch, Span<std::int64_t> costs, Span<std::int64_t> chosen,
                   Watch& watch) {
    const Span<const std::int64_t>& widths = given.widths;
    if (widths.size < 1 || chosen.size < 1 || costs.size < chosen.size) {
        return {Code::bad_argument};
    }
    std::int64_t rows = 0;
    const std::int64_t most = most_budget / costs.size;  // of a batch, so that no sum of all overflows
    for (std::int64_t i = 0; i < widths.size; ++i) {
        const bool rises = widths[i] > (i > 0 ? widths[i - 1] : 0);
        if (!rises || given.counts[i] < 0 || given.rows[i] < 1 || given.rows[i] > most / widths[i] ||
            given.counts[i] > most_budget / widths[widths.size - 1] - rows) {
            return {Code::out_of_range, i};
        }
        rows += given.counts[i];
    }
    const std::int64_t layers = plan_shapes_layers(widths.size, costs.size);
    Search search{widths.size, layers, scratch, watch};
    search.read(given);
    const std::int64_t useful = std::min(costs.size, search.find_number());
    if (useful > layers) {
        return {Code::row_too_long, layers};
    }
    search.run(useful, costs.data, chosen);
    std::fill(costs.begin() + useful, costs.end(), costs[useful - 1]);
    return {};
}

}  // namespace quadrat
