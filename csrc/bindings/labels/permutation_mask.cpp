#include "../../kernels/permutation_mask.hpp"

#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../kernels/special_tokens.hpp"
#include "../input/generator.hpp"
#include "../register.hpp"
#include "labels.hpp"

namespace quadrat {
namespace {

template <typename T>
T* pointer(std::uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

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

Status draw_as_torch(const py::object& generator, const std::vector<std::int64_t>& contexts, Scratch* scratch) {
    const SpanRule rule{{contexts.data(), static_cast<std::int64_t>(contexts.size())}, 0};
    return with_draws(Source::torch, generator, true, [&](rng::Draws& draws) {
        const Status status = choose_spans(draws, rule, scratch->count, scratch->width, scratch->chosen.data());
        if (status) {
            scratch->draw_orders(draws);
        }
        return status;
    });
}

// NumPy's collator draws spans from `random` and orders from `numpy.random`.
Status draw_as_numpy(const py::object& generator, const py::object& shuffler, const std::vector<std::int64_t>& contexts,
                     Scratch* scratch) {
    const SpanRule rule{{contexts.data(), static_cast<std::int64_t>(contexts.size())}, 1};
    Engine engine = Engine::of_python(generator);
    rng::PythonDraws spans(engine.words());
    return with_draws(Source::numpy_legacy, shuffler, true, [&](rng::Draws& draws) {
        const Status status = choose_spans(spans, rule, scratch->count, scratch->width, scratch->chosen.data());
        if (status) {
            engine.keep();
            scratch->draw_orders(draws);
        }
        return status;
    });
}

}  // namespace

void register_permutation_mask(py::module_& m) {
    // shuffler: None to draw as torch does, all from `generator`; else a RandomState, and `generator` a random.Random.
    // functional: the address of a byte a token, or 0; then the tokens of `special_ids` are.
    m.def(
        "permutation_mask",
        [](const py::object& generator, const py::object& shuffler, const std::vector<std::int64_t>& contexts,
           const std::vector<std::int64_t>& special_ids, std::int64_t mask_id, std::int64_t rows, std::int64_t width,
           std::uintptr_t functional, std::uintptr_t ids, std::uintptr_t labels, std::uintptr_t perm_mask,
           std::uintptr_t target_mapping) -> py::object {
            if (rows < 0 || width < 0 || width % 2 != 0 || width >= std::int64_t{1} << 31) {
                return py::make_tuple(static_cast<int>(Code::bad_argument), -1, -1);
            }
            Scratch scratch(rows, width);
            const std::vector<std::uint64_t> set = bit_set(special_ids);
            const Status status = shuffler.is_none() ? draw_as_torch(generator, contexts, &scratch)
                                                     : draw_as_numpy(generator, shuffler, contexts, &scratch);
            if (!status) {
                return py::make_tuple(static_cast<int>(status.code), status.row, status.position);
            }
            const py::gil_scoped_release release;
            if (functional == 0) {
                special_tokens(pointer<std::int64_t>(ids), rows * width,
                               {set.data(), static_cast<std::int64_t>(set.size())}, scratch.functional.data());
            }
            const std::uint8_t* const flags =
                functional == 0 ? scratch.functional.data() : pointer<std::uint8_t>(functional);
            permutation_mask({rows, width, scratch.chosen.data(), flags, scratch.order.data(), mask_id},
                             pointer<std::int64_t>(ids), pointer<std::int64_t>(labels), pointer<float>(perm_mask),
                             pointer<float>(target_mapping), scratch.ranks.data());
            return py::none();
        },
        py::arg("generator"), py::arg("shuffler"), py::arg("contexts"), py::arg("special_ids"), py::arg("mask_id"),
        py::arg("rows"), py::arg("width"), py::arg("functional"), py::arg("ids"), py::arg("labels"),
        py::arg("perm_mask"), py::arg("target_mapping"));
}

}  // namespace quadrat
