#include "plan_shapes.hpp"

#include <algorithm>

#include "batch.hpp"

namespace quadrat {
namespace {

// A place p from 0 to n is the end of the widths below it, the last of which is that of p. Those between two chosen
// places go to the width of the upper one.
class Search {
public:
    Search(const Widths& given, std::int64_t most, std::int64_t* scratch)
        : most_(most),
          end_(given.widths.size),
          rows_(scratch),
          widths_(rows_ + end_ + 1),
          batches_(widths_ + end_ + 1),
          own_(batches_ + end_ + 1),
          bounds_(own_ + end_ + 1),
          below_(bounds_ + most + 1),
          above_(below_ + (most + 1) * (end_ + 1)),
          before_(above_ + (most + 1) * (end_ + 1)) {
        rows_[0] = widths_[0] = batches_[0] = own_[0] = 0;
        for (std::int64_t i = 0; i < end_; ++i) {
            rows_[i + 1] = rows_[i] + given.counts[i];
            widths_[i + 1] = given.widths[i];
            batches_[i + 1] = given.rows[i];
            own_[i + 1] = own_[i] + given.counts[i] * given.widths[i];
        }
    }

    void run() {
        std::fill_n(below_, end_ + 1, none);
        std::fill_n(above_, end_ + 1, none);
        *below_ = above_[end_] = 0;
        for (std::int64_t count = 1; count <= most_; ++count) {
            relax(layer(below_, count - 1), layer(below_, count), false, 0, end_, 0, end_);
            relax(layer(above_, count - 1), layer(above_, count), true, 0, end_, 0, end_);
            bounds_[count] = bound(count);
        }
        for (std::int64_t count = 1; count <= most_; ++count) {
            find(layer(below_, count - 1), layer(below_, count), count);
        }
    }

    void write(std::int64_t* costs, Span<std::int64_t> chosen) const {
        for (std::int64_t count = 1; count <= most_; ++count) {
            costs[count - 1] = layer(below_, count)[end_];
        }
        std::int64_t found = 0;
        for (std::int64_t at = end_, left = chosen.size; at > 0; at = layer(before_, left--)[at]) {
            chosen[found++] = at - 1;
        }
        std::reverse(chosen.begin(), chosen.begin() + found);
        std::fill(chosen.begin() + found, chosen.end(), -1);
    }

private:
    static constexpr std::int64_t none = std::int64_t{1} << 62;  // more than any plan computes
    std::int64_t most_;
    std::int64_t end_;  // the last place
    std::int64_t* rows_;
    std::int64_t* widths_;
    std::int64_t* batches_;  // how many rows a batch of this width has
    std::int64_t* own_;      // the tokens of all rows below, each as wide as its own width
    std::int64_t* bounds_;   // by the number of widths: what the best plan computes at most
    // By the number of widths, at most, and by place: the tokens of the best plan of all rows below, and of all above,
    // without rows that fill batches; of those below, later with them, and none where no best plan has this place; and
    // the next place below in that plan.
    std::int64_t* below_;
    std::int64_t* above_;
    std::int64_t* before_;

    std::int64_t* layer(std::int64_t* table, std::int64_t count) const { return table + count * (end_ + 1); }

    // The tokens of all rows between two places, and of their batches.
    std::int64_t tokens(std::int64_t next, std::int64_t at) const { return (rows_[at] - rows_[next]) * widths_[at]; }
    std::int64_t computed(std::int64_t next, std::int64_t at) const {
        return (rows_[at] - rows_[next] + batches_[at] - 1) / batches_[at] * batches_[at] * widths_[at];
    }

    // The tokens of plans with one more width, for places from first to last, whose next ones lie from low to high: the
    // next place rises with the place, because a row costs more the wider its width is.
    void relax(const std::int64_t* known, std::int64_t* made, bool above, std::int64_t first, std::int64_t last,
               std::int64_t low, std::int64_t high) const {
        if (first > last) {
            return;
        }
        const std::int64_t middle = (first + last) / 2, lowest = above ? std::max(low, middle) : low;
        std::int64_t best = lowest, least = none;
        for (std::int64_t next = lowest; next <= (above ? high : std::min(high, middle)); ++next) {
            const std::int64_t cost = known[next] + (above ? tokens(middle, next) : tokens(next, middle));
            if (cost < least) {
                least = cost;
                best = next;
            }
        }
        made[middle] = least;
        relax(known, made, above, first, middle - 1, low, best);
        relax(known, made, above, middle + 1, last, best, high);
    }

    // What the plan of so many widths computes that is best without rows that fill batches.
    std::int64_t bound(std::int64_t count) const {
        std::int64_t sum = 0;
        for (std::int64_t at = end_, next = 0; at > 0; at = next) {
            const std::int64_t* const known = layer(below_, --count);
            next = 0;
            for (std::int64_t one = 1; one < at; ++one) {
                next = known[one] + tokens(one, at) < known[next] + tokens(next, at) ? one : next;
            }
            sum += computed(next, at);
        }
        return sum;
    }

    bool may_be_in_a_best_plan(std::int64_t count, std::int64_t at) const {
        for (std::int64_t all = count; all <= most_; ++all) {
            if (layer(below_, count)[at] + layer(above_, all - count)[at] <= bounds_[all]) {
                return true;
            }
        }
        return false;
    }

    // Finds what the best plans of at most so many widths compute, of the rows below each place that may be in one.
    void find(const std::int64_t* known, std::int64_t* made, std::int64_t count) {
        for (std::int64_t at = 1; at <= end_; ++at) {
            if (!may_be_in_a_best_plan(count, at)) {
                made[at] = none;
                continue;
            }
            made[at] = computed(0, at);
            layer(before_, count)[at] = 0;
            // Places that are further below have more tokens of their own.
            for (std::int64_t next = at - 1; next > 0 && own_[next] + tokens(next, at) < made[at]; --next) {
                if (known[next] + tokens(next, at) < made[at] && known[next] + computed(next, at) < made[at]) {
                    made[at] = known[next] + computed(next, at);
                    layer(before_, count)[at] = next;
                }
            }
        }
    }
};

}  // namespace

Status plan_shapes(const Widths& given, std::int64_t* scratch, Span<std::int64_t> costs, Span<std::int64_t> chosen) {
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
    Search search(given, costs.size, scratch);
    search.run();
    search.write(costs.data, chosen);
    return {};
}

}  // namespace quadrat
