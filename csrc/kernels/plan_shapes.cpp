#include "plan_shapes.hpp"

#include <algorithm>

#include "batch.hpp"

namespace quadrat {
namespace {

class Search {
public:
    Search(const Widths& given, std::int64_t most, std::int64_t* scratch)
        : given_(given),
          size_(given.widths.size),
          most_(most),
          rows_(scratch),
          tokens_(rows_ + size_),
          best_(tokens_ + size_),
          before_(best_ + most * size_) {
        std::int64_t rows = 0, tokens = 0;
        for (std::int64_t i = 0; i < size_; ++i) {
            rows_[i] = rows += given.counts[i];
            tokens_[i] = tokens += given.counts[i] * given.widths[i];
        }
    }

    // Finds the best plans whose widest width is this one, of at most 1, 2, ... widths; those below it are known.
    void find(std::int64_t last) {
        std::int64_t *const best = best_ + last * most_, *const before = before_ + last * most_;
        std::fill_n(best, most_, cost(none, last));
        std::fill_n(before, most_, none);
        std::int64_t end = most_;  // the plans of fewer widths may still become better
        for (std::int64_t next = last - 1; next >= 0; --next) {
            const std::int64_t least = (rows_[last] - rows_[next]) * given_.widths[last] + tokens_[next];
            while (end > 1 && best[end - 1] <= least) {
                --end;
            }
            if (end == 1) {
                return;
            }
            const std::int64_t more = cost(next, last);
            const std::int64_t* const below = best_ + next * most_;
            for (std::int64_t i = 1; i < end; ++i) {
                if (below[i - 1] + more < best[i]) {
                    best[i] = below[i - 1] + more;
                    before[i] = next;
                }
            }
        }
    }

    void write(std::int64_t* costs, Span<std::int64_t> chosen) const {
        std::copy_n(best_ + (size_ - 1) * most_, most_, costs);
        std::int64_t count = 0;
        for (std::int64_t at = size_ - 1, i = chosen.size - 1; at != none; at = before_[at * most_ + i--]) {
            chosen[count++] = at;
        }
        std::reverse(chosen.begin(), chosen.begin() + count);
        std::fill(chosen.begin() + count, chosen.end(), none);
    }

private:
    static constexpr std::int64_t none = -1;
    const Widths& given_;
    std::int64_t size_;
    std::int64_t most_;
    std::int64_t* rows_;    // of this width or less
    std::int64_t* tokens_;  // of these rows, each as wide as its own width
    std::int64_t* best_;
    std::int64_t* before_;  // the next width of the best plan

    // The tokens of the batches of one width: of rows wider than `next`.
    std::int64_t cost(std::int64_t next, std::int64_t last) const {
        const std::int64_t rows = rows_[last] - (next == none ? 0 : rows_[next]), batch = given_.rows[last];
        return (rows + batch - 1) / batch * batch * given_.widths[last];
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
    for (std::int64_t last = 0; last < widths.size; ++last) {
        search.find(last);
    }
    search.write(costs.data, chosen);
    return {};
}

}  // namespace quadrat
