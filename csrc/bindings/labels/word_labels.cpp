#include "word_labels.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "../../kernels/choose_words.hpp"
#include "../masking_options.hpp"
#include "../register.hpp"

namespace quadrat {
namespace {

// The positions in column 1, flat.
struct JoinedColumn {
    std::vector<std::int64_t> values, offsets;

    Status read(const Columns& columns) {
        const Column& column = columns.at(1);
        values.resize(static_cast<std::size_t>(column.total));
        offsets = column.offsets();
        return columns.flatten(1, values.data(), Kind::int64, column.total);
    }
};

}  // namespace

WordLabels::WordLabels(py::object shuffle, Source source, py::object generator, double probability,
                       const Replacement& replacement, py::array_t<std::uint8_t> pieces, bool joined, py::object before)
    : shuffle_(std::move(shuffle)),
      source_(source),
      generator_(std::move(generator)),
      probability_(probability),
      replacement_(replacement),
      pieces_(std::move(pieces)),
      joined_(joined),
      before_(std::move(before)) {}

Status WordLabels::write(const Columns& columns, const BatchIds& batch) const {
    if (batch.form == BatchIds::Form::flat) {
        return {Code::bad_argument};
    }
    JoinedColumn joined;
    if (joined_) {
        const Status status = joined.read(columns);
        if (!status) {
            return status;
        }
    }
    if (!before_.is_none()) {
        before_();
    }
    const std::int64_t count = batch.count();
    std::vector<std::int64_t> scratch(static_cast<std::size_t>(4 * batch.width));
    const std::unique_ptr<std::int64_t[]> positions(new std::int64_t[static_cast<std::size_t>(count)]);
    std::int64_t chosen = 0;
    const auto choose = [&](auto& source) {
        const auto& lengths = columns.at(batch.column).lengths;
        return choose_words(source, batch.ids, {lengths.data(), batch.rows}, batch.width,
                            batch.form == BatchIds::Form::left ? Side::left : Side::right,
                            {pieces_.data(), pieces_.size()},
                            {joined.values.data(), joined_ ? joined.offsets.data() : nullptr}, probability_,
                            scratch.data(), positions.get(), &chosen);
    };
    const auto replace = [&](rng::Draws& draws) {
        std::vector<std::uint8_t> hit(static_cast<std::size_t>(chosen));
        std::vector<std::int64_t> random(static_cast<std::size_t>(chosen));
        replace_tokens(draws, replacement_, {positions.get(), chosen}, count, batch.ids, batch.labels, hit.data(),
                       random.data());
        return Status{};
    };
    constexpr bool every_word = true;  // NumPy draws a random token for each, replaced or not, as torch does
    if (shuffle_.is_none()) {
        return with_draws(source_, generator_, every_word, [&](rng::Draws& draws) {
            const Status status = choose(draws);
            return status ? replace(draws) : status;
        });
    }
    Engine engine = Engine::of_python(shuffle_);
    rng::PythonDraws shuffler(engine.words());
    Status status = choose(shuffler);
    if (status) {
        status = with_draws(source_, generator_, every_word, replace);
        engine.keep();
    }
    return status;
}

void register_word_labels(py::module_& m) {
    py::class_<WordLabels, Labels>(m, "WordLabels")
        .def(py::init([](py::object shuffle, int source, py::object generator, double probability, double mask,
                         double random_of_rest, bool has_random, std::int64_t mask_id, std::int64_t vocab_size,
                         py::array_t<std::uint8_t> pieces, bool joined, py::object before) {
                 const Replacement replacement{mask, random_of_rest, has_random, mask_id, vocab_size};
                 check_vocab_size(vocab_size);
                 return std::make_unique<WordLabels>(std::move(shuffle), static_cast<Source>(source),
                                                     std::move(generator), probability, replacement, std::move(pieces),
                                                     joined, std::move(before));
             }),
             py::arg("shuffle"), py::arg("source"), py::arg("generator"), py::arg("probability"), py::arg("mask"),
             py::arg("random_of_rest"), py::arg("has_random"), py::arg("mask_id"), py::arg("vocab_size"),
             py::arg("pieces"), py::arg("joined"), py::arg("before"));
}

}  // namespace quadrat
