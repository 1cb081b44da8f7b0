// What the samplers of transformers compute for each epoch or step.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "../../kernels/group_by_length.hpp"
#include "../../kernels/rebalance_batches.hpp"
#include "../register.hpp"

namespace quadrat {
namespace {

// Puts members in the order in which this Python goes through a set of them.
void order_of_set(Span<std::int64_t> members) {
    py::set set;
    for (const std::int64_t member : members) {
        if (!set.add(member)) {
            throw py::error_already_set();
        }
    }
    std::int64_t* next = members.begin();
    for (const py::handle member : set) {
        *next++ = member.cast<std::int64_t>();
    }
}

constexpr std::int64_t most_moves = std::int64_t{1} << 24;

Status rebalance(Address lengths, std::int64_t rows, std::int64_t ranks, double coefficient, std::int64_t moves,
                 Address counts, Address ranking, std::int64_t batches) {
    if (batches < 1 || batches > rows || moves < 0 || moves > most_moves) {
        return {Code::bad_argument};
    }
    const auto size = static_cast<std::size_t>(batches);
    std::size_t places = 2;
    while (places / 2 < static_cast<std::size_t>(moves)) {
        places *= 2;
    }
    std::vector<double> costs(size);
    std::vector<std::int64_t> numbers(2 * size);
    std::vector<std::uint8_t> flags(2 * size);
    std::vector<CountsKey> seen(places);
    const BalanceScratch scratch{costs.data(), numbers.data(),      numbers.data() + size,
                                 flags.data(), flags.data() + size, {seen.data(), static_cast<std::int64_t>(places)}};
    const BalanceOptions options{ranks, coefficient, moves, &order_of_set};
    return rebalance_batches({lengths, rows}, options, scratch, {counts, batches}, {ranking, batches});
}

}  // namespace

void register_samplers(py::module_& m) {
    m.def(
        "group_by_length",
        [](Address lengths, std::int64_t lengths_size, std::int64_t megabatch, Address rows, std::int64_t count) {
            const py::gil_scoped_release unlocked;
            std::vector<std::int64_t> spare(
                static_cast<std::size_t>(std::max<std::int64_t>(0, std::min(megabatch, count))));
            return group_by_length({lengths, lengths_size}, megabatch,
                                   {spare.data(), static_cast<std::int64_t>(spare.size())}, {rows, count});
        },
        "lengths"_a, "lengths_size"_a, "megabatch"_a, "rows"_a, "count"_a);
    m.def("rebalance_batches", &rebalance, "lengths"_a, "rows"_a, "ranks"_a, "coefficient"_a, "moves"_a, "counts"_a,
          "ranking"_a, "batches"_a);
}

}  // namespace quadrat
