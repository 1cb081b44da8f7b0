// Labels of masked and permutation language modelling, by what they are drawn from and how tokens are chosen.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>

#include "../../kernels/prefetch.hpp"
#include "../classes.hpp"
#include "labels.hpp"

namespace quadrat {

PhiloxLabels::PhiloxLabels(const PhiloxOptions& options, const std::vector<std::int64_t>& special_ids,
                           std::int64_t special, std::int64_t words, int word_format, std::int64_t keys,
                           std::optional<py::array_t<std::uint32_t>> epoch)
    : MaskingLabels(special_ids, special, words, word_format),
      options_(options),
      keys_(keys),
      epoch_(std::move(epoch)) {
    static_cast<void>(checked_masking(options));
    if (epoch_ && epoch_->size() != 1) {
        throw py::value_error("epoch must be one number");
    }
}

PhiloxOptions PhiloxLabels::options() const {
    PhiloxOptions options = options_;
    if (epoch_) {
        std::get<1>(options) = peek(epoch_->data());  // another process may have written it
    }
    return options;
}

Status PhiloxLabels::write_keys(const Columns& columns, Span<const std::int64_t> ids, Span<const std::int64_t> start,
                                const std::int64_t* lengths, std::uint64_t* out) const {
    return keys_ < 0 ? row_keys(ids, start, lengths, out)
                     : columns.numbers(static_cast<std::size_t>(keys_), out, Kind::int64);
}

Status PhiloxLabels::mask(const Columns& columns, const std::uint8_t* words, const std::uint64_t* keys,
                          const BatchIds& batch) const {
    const std::vector<std::int64_t> start = batch.starts();
    std::vector<std::uint64_t> keys_of_rows(keys == nullptr ? static_cast<std::size_t>(batch.rows) : 0);
    if (keys == nullptr) {
        const Status status = write_keys(columns, {batch.ids, batch.count()}, {start.data(), batch.rows}, batch.lengths,
                                         keys_of_rows.data());
        if (!status) {
            return status;
        }
        keys = keys_of_rows.data();
    }
    return philox_mask(checked_masking(options()), {keys, batch.rows}, start.data(), batch.lengths, batch.count(),
                       words, batch.ids, batch.labels);
}

namespace {

// Draws from a generator, as the reference does.
class MaskedLabels final : public MaskingLabels {
public:
    MaskedLabels(int type, py::object generator, double mlm_probability, const ReplacementOptions& replacement,
                 const std::vector<std::int64_t>& special_ids, std::int64_t special, std::int64_t words,
                 int word_format)
        : MaskingLabels(special_ids, special, words, word_format),
          type_(static_cast<GeneratorType>(type)),
          generator_(std::move(generator)),
          probability_(mlm_probability),
          replacement_(checked_replacement(replacement)) {}

    void traverse(Visitor& visit) const { visit(generator_); }

private:
    Status mask(const Columns&, const std::uint8_t* words, const std::uint64_t*, const BatchIds& batch) const override {
        const std::int64_t count = batch.count();
        const auto positions = scratch<std::int64_t>(count), other = scratch<std::int64_t>(count);
        const auto hit = scratch<std::uint8_t>(count);
        constexpr bool every_word = false;
        return with_draws(type_, generator_, every_word, [&](rng::Draws& draws) {
            mask_tokens(draws, probability_, replacement_, words, count, batch.width, batch.ids, batch.labels,
                        positions.get(), hit.get(), other.get());
            return Status{};
        });
    }

    GeneratorType type_;
    py::object generator_;
    double probability_;
    Replacement replacement_;
};

// As with_draws, in two parts: draw(Draws&) only where choose(IntegerDraws&) returned a Status that is ok. shuffler:
// the random.Random that chooses, or None for the generator.
template <typename Choose, typename Draw>
Status with_chosen(const py::object& shuffler, GeneratorType type, const py::object& generator, Choose choose,
                   Draw draw) {
    std::optional<Turn> turn;
    if (!shuffler.is_none()) {
        turn.emplace();
    }
    constexpr bool every_word = true;
    return with_draws(type, generator, every_word, [&](rng::Draws& draws) {
        Status status;
        if (turn) {
            Engine engine = Engine::of_python(shuffler);
            rng::PythonDraws shuffles(engine.words());
            status = choose(static_cast<rng::IntegerDraws&>(shuffles));
            if (status) {
                engine.keep();
            }
        } else {
            status = choose(static_cast<rng::IntegerDraws&>(draws));
        }
        if (status) {
            draw(draws);
        }
        return status;
    });
}

class WordLabels final : public Labels {
public:
    // shuffle: the random.Random that orders the words, or None for the generator that all else is drawn from. pieces:
    // by id, see WordPiece. joined: whether column 1 holds positions that join the word before them. before: called
    // without arguments for each row once the ids are there and nothing is drawn yet, or None.
    WordLabels(py::object shuffle, int type, py::object generator, double probability,
               const ReplacementOptions& replacement, py::array_t<std::uint8_t> pieces, bool joined, py::object before)
        : shuffle_(std::move(shuffle)),
          type_(static_cast<GeneratorType>(type)),
          generator_(std::move(generator)),
          probability_(probability),
          replacement_(checked_replacement(replacement)),
          pieces_(std::move(pieces)),
          joined_(joined),
          before_(std::move(before)) {}

    void traverse(Visitor& visit) const { visit(shuffle_, generator_, pieces_, before_); }

    // Rows must be padded, not flat.
    Status write(const Columns& columns, const BatchIds& batch) const override {
        if (batch.flat) {
            return {Code::bad_argument};
        }
        std::vector<std::int64_t> joined, offsets;
        if (joined_) {
            const std::int64_t total = columns.at(1).total;
            joined.resize(static_cast<std::size_t>(total));
            offsets = columns.at(1).offsets();
            if (const Status status = columns.flatten(1, joined.data(), Kind::int64, total); !status) {
                return status;
            }
        }
        for (std::int64_t row = 0; row < batch.rows && !before_.is_none(); ++row) {
            before_();
        }
        const std::int64_t count = batch.count();
        const auto room = scratch<std::int64_t>(4 * batch.width);
        const auto positions = scratch<std::int64_t>(count), random = scratch<std::int64_t>(count);
        const auto hit = scratch<std::uint8_t>(count);  // nothing may fail once a number has been drawn
        std::int64_t chosen = 0;
        const auto choose = [&](rng::IntegerDraws& draws) {
            return choose_words(draws, batch.ids, {batch.lengths, batch.rows}, batch.width, batch.side,
                                {pieces_.data(), pieces_.size()}, {joined.data(), joined_ ? offsets.data() : nullptr},
                                probability_, room.get(), positions.get(), &chosen);
        };
        // NumPy draws a random token for each, replaced or not, as torch does.
        return with_chosen(shuffle_, type_, generator_, choose, [&](rng::Draws& draws) {
            replace_tokens(draws, replacement_, {positions.get(), chosen}, count, batch.ids, batch.labels, hit.get(),
                           random.get());
        });
    }

private:
    py::object shuffle_;
    GeneratorType type_;
    py::object generator_;
    double probability_;
    Replacement replacement_;
    py::array_t<std::uint8_t> pieces_;
    bool joined_;
    py::object before_;
};

// shuffler: None to draw as torch does, all from `generator`. NumPy's collator draws spans from `random`, the generator
// then, and orders from `numpy.random`, the shuffler. functional: the address of a byte a token, or 0; then the tokens
// of `special_ids` are.
Status mask_permutations(const py::object& generator, const py::object& shuffler,
                         const std::vector<std::int64_t>& contexts, const std::vector<std::int64_t>& special_ids,
                         std::int64_t mask_id, std::int64_t rows, std::int64_t width, Address functional, Address ids,
                         Address labels, Address perm_mask, Address target_mapping) {
    if (rows < 0 || width < 0 || width % 2 != 0 || width >= std::int64_t{1} << 31) {
        return {Code::bad_argument};
    }
    // All memory is there before the first number is drawn.
    const std::int64_t half = width / 2;
    std::vector<std::uint8_t> chosen(static_cast<std::size_t>(rows * width)), special(chosen.size());
    std::vector<std::int64_t> order(static_cast<std::size_t>(rows * half));
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(2 * width));
    const std::vector<std::uint64_t> set = bit_set(special_ids);
    const SpanRule rule{span_of(contexts), shuffler.is_none() ? 0 : 1};
    const auto choose = [&](rng::IntegerDraws& draws) { return choose_spans(draws, rule, rows, width, chosen.data()); };
    const auto draw_orders = [&](rng::Draws& draws) {
        for (std::int64_t i = 0; i < rows; ++i) {
            draws.permutation(half, order.data() + i * half);
        }
    };
    const Status status = shuffler.is_none()
                              ? with_chosen(shuffler, GeneratorType::torch, generator, choose, draw_orders)
                              : with_chosen(generator, GeneratorType::numpy_legacy, shuffler, choose, draw_orders);
    if (!status) {
        return status;
    }
    const py::gil_scoped_release release;
    const std::uint8_t* flags = functional;
    if (flags == nullptr) {
        flags = special.data();
        special_tokens(ids, rows * width, span_of(set), special.data());
    }
    permutation_mask({rows, width, chosen.data(), flags, order.data(), mask_id}, ids, labels, perm_mask, target_mapping,
                     ranks.data());
    return {};
}

}  // namespace

void register_labels(py::module_& m) {
    bind_class<Labels>(m, "Labels");
    bind_class<CausalLabels, Labels>(m, "CausalLabels")
        .def(py::init<std::int64_t, std::int64_t>(), "pad_id"_a, "special"_a = -1);
    bind_class<KeptLabels, Labels>(m, "KeptLabels").def(py::init<std::int64_t>(), "mask"_a);
    bind_class<MaskingLabels, Labels>(m, "MaskingLabels")
        .def(
            "write",
            [](const MaskingLabels& self, Address ids, Address labels, std::int64_t rows, std::int64_t width, Side left,
               bool flat, Address lengths, Address keys, Address special, Address offsets) {
                return self.write(special, offsets, keys, {0, rows, width, left, flat, lengths, ids, labels});
            },
            "ids"_a, "labels"_a, "rows"_a, "width"_a, "left"_a, "flat"_a, "lengths"_a, "keys"_a, "special"_a,
            "offsets"_a);
    bind_class<MaskedLabels, MaskingLabels>(m, "MaskedLabels")
        .def(py::init<int, py::object, double, const ReplacementOptions&, const std::vector<std::int64_t>&,
                      std::int64_t, std::int64_t, int>(),
             "generator_type"_a, "generator"_a, "mlm_probability"_a, "replacement"_a, "special_ids"_a, "special"_a = -1,
             "words"_a = -1, "word_format"_a = static_cast<int>(WordFormat::none));
    bind_class<PhiloxLabels, MaskingLabels>(m, "PhiloxLabels")
        .def(py::init<const PhiloxOptions&, const std::vector<std::int64_t>&, std::int64_t, std::int64_t, int,
                      std::int64_t, std::optional<py::array_t<std::uint32_t>>>(),
             "options"_a, "special_ids"_a, "special"_a = -1, "words"_a = -1,
             "word_format"_a = static_cast<int>(WordFormat::none), "keys"_a = -1, "epoch"_a = py::none());
    bind_class<WordLabels, Labels>(m, "WordLabels")
        .def(py::init<py::object, int, py::object, double, const ReplacementOptions&, py::array_t<std::uint8_t>, bool,
                      py::object>(),
             "shuffle"_a, "generator_type"_a, "generator"_a, "probability"_a, "replacement"_a, "pieces"_a, "joined"_a,
             "before"_a);
    m.def("permutation_mask", &mask_permutations, "generator"_a, "shuffler"_a, "contexts"_a, "special_ids"_a,
          "mask_id"_a, "rows"_a, "width"_a, "functional"_a, "ids"_a, "labels"_a, "perm_mask"_a, "target_mapping"_a);
}

}  // namespace quadrat
