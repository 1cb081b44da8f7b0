#include "../../kernels/permutation_mask.hpp"

#include <pybind11/stl.h>

#include "../classes.hpp"
#include "labels.hpp"

namespace quadrat {
namespace {

// What is drawn for a batch, and room for the kernel: all of it is there before the first number is drawn.
struct Scratch {
    std::int64_t count, width;
    std::vector<std::uint8_t> chosen, functional;
    std::vector<std::int64_t> order;
    std::vector<std::int32_t> ranks;

    Scratch(std::int64_t rows, std::int64_t tokens)
        : count(rows),
          width(tokens),
          chosen(static_cast<std::size_t>(rows * tokens)),
          functional(chosen.size()),
          order(static_cast<std::size_t>(rows * (tokens / 2))),
          ranks(static_cast<std::size_t>(2 * tokens)) {}

    void draw_orders(rng::Draws& draws) {
        for (std::int64_t i = 0; i < count; ++i) {
            draws.permutation(width / 2, order.data() + i * (width / 2));
        }
    }
};

// Without a shuffler all is drawn from a torch generator. NumPy's collator draws spans from `random`, the generator
// then, and orders from `numpy.random`, the shuffler.
Status draw(const py::object& generator, const py::object& shuffler, const std::vector<std::int64_t>& contexts,
            Scratch* scratch) {
    const SpanRule rule{span_of(contexts), shuffler.is_none() ? 0 : 1};
    const auto choose = [&](rng::IntegerDraws& draws) {
        return choose_spans(draws, rule, scratch->count, scratch->width, scratch->chosen.data());
    };
    const auto draw_orders = [&](rng::Draws& draws) { scratch->draw_orders(draws); };
    return shuffler.is_none() ? with_chosen(shuffler, GeneratorType::torch, generator, choose, draw_orders)
                              : with_chosen(generator, GeneratorType::numpy_legacy, shuffler, choose, draw_orders);
}

}  // namespace

void register_permutation_mask(py::module_& m) {
    // shuffler: None to draw as torch does, all from `generator`; else a RandomState, and `generator` a random.Random.
    // functional: the address of a byte a token, or 0; then the tokens of `special_ids` are.
    m.def(
        "permutation_mask",
        [](const py::object& generator, const py::object& shuffler, const std::vector<std::int64_t>& contexts,
           const std::vector<std::int64_t>& special_ids, std::int64_t mask_id, std::int64_t rows, std::int64_t width,
           Address functional, Address ids, Address labels, Address perm_mask, Address target_mapping) -> Status {
            if (rows < 0 || width < 0 || width % 2 != 0 || width >= std::int64_t{1} << 31) {
                return {Code::bad_argument};
            }
            Scratch scratch(rows, width);
            const std::vector<std::uint64_t> set = bit_set(special_ids);
            if (const Status status = draw(generator, shuffler, contexts, &scratch); !status) {
                return status;
            }
            const py::gil_scoped_release release;
            const std::uint8_t* flags = functional;
            if (flags == nullptr) {
                flags = scratch.functional.data();
                special_tokens(ids, rows * width, span_of(set), scratch.functional.data());
            }
            permutation_mask({rows, width, scratch.chosen.data(), flags, scratch.order.data(), mask_id}, ids, labels,
                             perm_mask, target_mapping, scratch.ranks.data());
            return {};
        },
        "generator"_a, "shuffler"_a, "contexts"_a, "special_ids"_a, "mask_id"_a, "rows"_a, "width"_a, "functional"_a,
        "ids"_a, "labels"_a, "perm_mask"_a, "target_mapping"_a);
}

}  // namespace quadrat
