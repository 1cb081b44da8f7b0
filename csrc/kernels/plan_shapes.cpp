#include "plan_shapes.hpp"

#include <algorithm>
#include <utility>

#include "batches.hpp"

namespace quadrat {
namespace {

// A place p from 0 to n is the end of the widths below it, the last of which is that of p. Those between two chosen
// places go to the width of the upper one.
struct Search {
    static constexpr std::int64_t none = std::int64_t{1} << 62;  // more than any plan computes
    std::int64_t end;                                            // the last place
    std::int64_t* rows;
    Watch& watch;
    std::int64_t* widths = rows + end + 1;
    std::int64_t* batches = widths + end + 1;  // how many rows a batch of this width has
    std::int64_t* own = batches + end + 1;     // the tokens of all rows below, each as wide as its own width
    // By place: the tokens of the best plan of all rows below, of at most so many widths and of one more.
    std::int64_t* known = own + end + 1;
    std::int64_t* made = known + end + 1;
    std::int64_t* before = made + end + 1;  // by the number of widths, and by place: the next place below in that plan

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
        find(made, made, places(1));
        std::int64_t number = 0;
        for (std::int64_t at = end; at > 0; at = places(1)[at]) {
            ++number;
        }
        return number;
    }

    // Finds the best plans of up to `most` widths. Writes that of `chosen.size`, at most as many.
    void run(std::int64_t most, std::int64_t* costs, Span<std::int64_t> chosen) {
        std::fill_n(known, end + 1, none);
        *known = 0;
        for (std::int64_t count = 1; count <= most; ++count) {
            find(known, made, places(count));
            std::swap(known, made);
            costs[count - 1] = known[end];
        }
        write(std::min(chosen.size, most), chosen);
    }

    std::int64_t* places(std::int64_t count) const { return before + (count - 1) * (end + 1); }

    // The tokens of all rows between two places, and of their batches.
    std::int64_t tokens(std::int64_t next, std::int64_t at) const { return (rows[at] - rows[next]) * widths[at]; }
    std::int64_t computed(std::int64_t next, std::int64_t at) const {
        return (rows[at] - rows[next] + batches[at] - 1) / batches[at] * batches[at] * widths[at];
    }

    // Finds what the best plans of the rows below each place compute. fewer: those of one width fewer; or, for plans of
    // any number of widths, `plans`.
    void find(const std::int64_t* fewer, std::int64_t* plans, std::int64_t* next_below) const {
        plans[0] = next_below[0] = 0;
        for (std::int64_t at = 1; at <= end; ++at) {
            plans[at] = computed(0, at);
            next_below[at] = 0;
            const auto look_at = [&](std::int64_t next) {
                // Division takes long: first as if the last batch were not filled.
                if (fewer[next] + tokens(next, at) < plans[at] && fewer[next] + computed(next, at) < plans[at]) {
                    plans[at] = fewer[next] + computed(next, at);
                    next_below[at] = next;
                }
            };
            look_at(next_below[at - 1]);  // seldom far from the best, so that the search ends early
            std::int64_t next = at - 1;
            // Places that are further below have more tokens of their own.
            for (; next > 0 && own[next] + tokens(next, at) < plans[at]; --next) {
                look_at(next);
            }
            watch.after(at - next);
        }
    }

    void write(std::int64_t count, Span<std::int64_t> chosen) const {
        std::int64_t found = 0;
        for (std::int64_t at = end; at > 0; at = places(count--)[at]) {
            chosen[found++] = at - 1;
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
    Search search{widths.size, scratch, watch};
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
