// Labels of whole-word masking as transformers 4.x does it: choose_words, then replace_tokens.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "../../kernels/choose_words.hpp"
#include "../classes.hpp"
#include "labels.hpp"

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

class WordLabels final : public Labels {
public:
    // shuffle: the random.Random that orders the words, or None for the generator that all else is drawn from. pieces:
    // by id, see WordPiece. joined: whether column 1 holds positions that join the word before them. before: called
    // without arguments once the ids are there and nothing is drawn yet, or None.
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

    template <typename Visit>
    void traverse(Visit& visit) const {
        visit(shuffle_, generator_, pieces_, before_);
    }

    // Rows must be padded, not flat.
    Status write(const Columns& columns, const BatchIds& batch) const override {
        if (batch.flat) {
            return {Code::bad_argument};
        }
        JoinedColumn joined;
        if (joined_) {
            if (const Status status = joined.read(columns); !status) {
                return status;
            }
        }
        if (!before_.is_none()) {
            before_();
        }
        const std::int64_t count = batch.count();
        const auto room = scratch<std::int64_t>(4 * batch.width);
        const auto positions = scratch<std::int64_t>(count), random = scratch<std::int64_t>(count);
        const auto hit = scratch<std::uint8_t>(count);  // nothing may fail once a number has been drawn
        std::int64_t chosen = 0;
        const auto choose = [&](rng::IntegerDraws& draws) {
            const auto& lengths = columns.at(batch.column).lengths;
            return choose_words(draws, batch.ids, {lengths.data(), batch.rows}, batch.width, batch.side,
                                {pieces_.data(), pieces_.size()},
                                {joined.values.data(), joined_ ? joined.offsets.data() : nullptr}, probability_,
                                room.get(), positions.get(), &chosen);
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

}  // namespace

void register_word_labels(py::module_& m) {
    bind_class<WordLabels, Labels>(m, "WordLabels")
        .def(py::init<py::object, int, py::object, double, const ReplacementOptions&, py::array_t<std::uint8_t>, bool,
                      py::object>(),
             "shuffle"_a, "generator_type"_a, "generator"_a, "probability"_a, "replacement"_a, "pieces"_a, "joined"_a,
             "before"_a);
}

}  // namespace quadrat
