#include "rebalance_batches.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace quadrat {
namespace {

constexpr std::int64_t most_tokens = std::int64_t{1} << 62;

double cost_of(std::int64_t rows, std::int64_t longest, double coefficient) {
    const auto length = static_cast<double>(longest);
    // volatile: a fused multiply-add would round once where the reference rounds twice.
    const volatile double quadratic = coefficient * static_cast<double>(rows) * length * length;
    return static_cast<double>(rows * longest) + quadratic;
}

// The steps of SplitMix64.
std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

class Search {
public:
    Search(Span<const std::int64_t> lengths, const BalanceOptions& options, const BalanceScratch& scratch,
           std::int64_t batches)
        : lengths_(lengths), options_(options), scratch_(scratch), batches_(batches) {
        std::fill_n(scratch.frozen, batches, std::uint8_t{0});
        for (std::int64_t i = 0; i < batches; ++i) {
            scratch.counts[i] = 0;
            add(i, lengths.size / batches + (i < lengths.size % batches ? 1 : 0));
        }
    }

    void run(Span<std::int64_t> best) {
        const std::int64_t* const counts = scratch_.counts;
        std::copy_n(counts, batches_, best.data);
        double best_spread = std::numeric_limits<double>::infinity();
        for (std::int64_t move = 0; move < options_.moves && see(); ++move) {
            find_costs(counts);
            std::int64_t active = 0, high = -1, low = -1;
            for (std::int64_t i = 0; i < batches_; ++i) {
                if (scratch_.frozen[i] == 0) {
                    ++active;
                    high = high < 0 || scratch_.costs[i] > scratch_.costs[high] ? i : high;
                    low = low < 0 || scratch_.costs[i] < scratch_.costs[low] ? i : low;
                }
            }
            if (active <= 1) {
                return;
            }
            const double spread = scratch_.costs[high] - scratch_.costs[low];
            if (spread < best_spread) {
                best_spread = spread;
                std::copy_n(counts, batches_, best.data);
            }
            if (scratch_.costs[high] == scratch_.costs[low]) {
                return;
            }
            if (counts[high] > 1) {
                add(high, -1);
                add(low, 1);
            } else {
                freeze_slot_of(high);
            }
        }
    }

    // The batches by descending cost, equal ones in their order.
    void rank(const std::int64_t* counts, std::int64_t* ranking) {
        find_costs(counts);
        std::iota(ranking, ranking + batches_, std::int64_t{0});
        std::sort(ranking, ranking + batches_, [&](std::int64_t a, std::int64_t b) {
            return scratch_.costs[a] != scratch_.costs[b] ? scratch_.costs[a] > scratch_.costs[b] : a < b;
        });
    }

private:
    void find_costs(const std::int64_t* counts) {
        for (std::int64_t i = 0, row = 0; i < batches_; row += counts[i++]) {
            scratch_.costs[i] = cost_of(counts[i], lengths_[row], options_.coefficient);
        }
    }

    void add(std::int64_t batch, std::int64_t rows) {
        change_key(batch, std::uint64_t{0} - 1);
        scratch_.counts[batch] += rows;
        change_key(batch, 1);
    }

    void change_key(std::int64_t batch, std::uint64_t factor) {
        const auto count = static_cast<std::uint64_t>(scratch_.counts[batch]);
        const std::uint64_t place = mixed(static_cast<std::uint64_t>(batch) * 0x9E3779B97F4A7C15 + count);
        key_.low += factor * mixed(place + 1);
        key_.high += factor * mixed(place + 2);
    }

    // Whether the numbers of rows are new; from now on they are not. Two different ones take each other's place with a
    // probability of 2^-127.
    bool see() {
        const auto mask = static_cast<std::uint64_t>(scratch_.seen.size) - 1;
        const CountsKey key{key_.low, key_.high | 1};  // never all zero, which means an empty place
        for (std::uint64_t at = key.low & mask;; at = (at + 1) & mask) {
            CountsKey& found = scratch_.seen[static_cast<std::int64_t>(at)];
            if (found.low == key.low && found.high == key.high) {
                return false;
            }
            if (found.low == 0 && found.high == 0) {
                found = key;
                return true;
            }
        }
    }

    // The costliest batch has one row and cannot give any away. Its slot is not changed any more, after the slot's
    // other batches have taken rows from outside of it, as long as they do not cost more than the costliest.
    void freeze_slot_of(std::int64_t pivot) {
        const double cap = scratch_.costs[pivot];
        std::int64_t* const ranking = scratch_.members;
        rank(scratch_.counts, ranking);
        const std::int64_t slot = (std::find(ranking, ranking + batches_, pivot) - ranking) / options_.ranks;
        const std::int64_t first = slot * options_.ranks;
        const Span<std::int64_t> members{ranking + first, std::min(options_.ranks, batches_ - first)};
        options_.order_of_set(members);
        std::fill_n(scratch_.is_member, batches_, std::uint8_t{0});
        for (const std::int64_t member : members) {
            scratch_.is_member[member] = 1;
        }
        for (const std::int64_t member : members) {
            if (member != pivot && scratch_.frozen[member] == 0) {
                fill_up(member, cap);
            }
        }
        for (const std::int64_t member : members) {
            scratch_.frozen[member] = 1;
        }
    }

    void fill_up(std::int64_t batch, double cap) {
        const std::int64_t* const counts = scratch_.counts;
        while (true) {
            const std::int64_t longest = lengths_[std::accumulate(counts, counts + batch, std::int64_t{0})];
            if (cost_of(counts[batch] + 1, longest, options_.coefficient) > cap) {
                return;
            }
            find_costs(counts);
            std::int64_t donor = -1;
            for (std::int64_t i = 0; i < batches_; ++i) {
                const bool gives = scratch_.frozen[i] == 0 && scratch_.is_member[i] == 0 && counts[i] > 1;
                if (gives && (donor < 0 || scratch_.costs[i] < scratch_.costs[donor])) {
                    donor = i;
                }
            }
            if (donor < 0) {
                return;
            }
            add(batch, 1);
            add(donor, -1);
        }
    }

    Span<const std::int64_t> lengths_;
    const BalanceOptions& options_;
    const BalanceScratch& scratch_;
    std::int64_t batches_;
    CountsKey key_;
};

}  // namespace

Status rebalance_batches(Span<const std::int64_t> lengths, const BalanceOptions& options, const BalanceScratch& scratch,
                         Span<std::int64_t> counts, Span<std::int64_t> ranking) {
    const std::int64_t batches = counts.size, seen = scratch.seen.size;
    if (batches < 1 || ranking.size != batches || lengths.size < batches || options.ranks < 1 || options.moves < 0 ||
        (seen & (seen - 1)) != 0 || seen / 2 < options.moves || seen < 1) {
        return {Code::bad_argument};
    }
    for (std::int64_t row = 0; row < lengths.size; ++row) {
        if (lengths[row] < 0 || lengths[row] > most_tokens / lengths.size ||
            (row > 0 && lengths[row] > lengths[row - 1])) {
            return {Code::bad_argument, row};
        }
    }
    Search search(lengths, options, scratch, batches);
    search.run(counts);
    search.rank(counts.data, ranking.data);
    return {};
}

}  // namespace quadrat
