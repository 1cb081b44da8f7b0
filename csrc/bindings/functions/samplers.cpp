// What the samplers of transformers compute for each epoch or step.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "../../kernels/group_by_length.hpp"
#include "../../kernels/rebalance_batches.hpp"
#include "../register.hpp"
#include "ints.hpp"

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

Status rebalance(const Ints& lengths, std::int64_t ranks, double coefficient, std::int64_t moves, Ints& counts,
                 Ints& ranking) {
    const std::int64_t batches = counts.size();
    require_size(ranking, batches, "ranking");
    if (batches < 1 || batches > lengths.size() || moves < 0 || moves > most_moves) {
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
    return rebalance_batches(span_of(lengths), options, scratch, span_to(counts), span_to(ranking));
}

}  // namespace

void register_samplers(py::module_& m) {
    m.def(
        "group_by_length",
        [](const Ints& lengths, std::int64_t megabatch, Ints& rows) {
            std::vector<std::int64_t> spare(
                static_cast<std::size_t>(std::max<std::int64_t>(0, std::min<std::int64_t>(megabatch, rows.size()))));
            return group_by_length(span_of(lengths), megabatch, {spare.data(), static_cast<std::int64_t>(spare.size())},
                                   span_to(rows));
        },
        array_arg("lengths"), "megabatch"_a, array_arg("rows"), WithoutGil());
    m.def("rebalance_batches", &rebalance, array_arg("lengths"), "ranks"_a, "coefficient"_a, "moves"_a,
          array_arg("counts"), array_arg("ranking"));
}

}  // namespace quadrat
