#include "labels.hpp"

#include <pybind11/stl.h>

#include <algorithm>

#include "../../kernels/copy_rows.hpp"
#include "../classes.hpp"

namespace quadrat {
namespace {

// The words of a row, see read_words; numbers that no Python object holds are word ids.
Status read_row_of_words(const Column& column, std::size_t i, WordFormat format, std::int64_t length,
                         std::int64_t* out) {
    const Row& row = column.rows[i];
    if (column.owners[i]) {
        return read_words(column.owners[i].ptr(), format, length, out);
    }
    if (row.length != length) {
        return {Code::wrong_length};
    }
    constexpr std::int64_t first = 0;
    return format == WordFormat::offsets && length > 0 ? Status{Code::wrong_type}
                                                       : copy_rows({&row, 1}, {&first, 1}, Kind::int64, out, length);
}

// What a token is to masking without whole words: special, or a word of its own.
void words_of_special(std::int64_t count, std::uint8_t* special) {
    for (std::int64_t i = 0; i < count; ++i) {
        special[i] = special[i] != 0 ? word_none : word_begins;
    }
}

}  // namespace

std::vector<std::uint64_t> bit_set(const std::vector<std::int64_t>& ids) {
    std::vector<std::uint64_t> set;
    for (const std::int64_t id : ids) {
        if (id < 0 || id >= most_tokens) {
            throw py::value_error(message("special_ids must be between 0 and 2**28 - 1, not ", id));
        }
        const auto at = static_cast<std::size_t>(id / 64);
        set.resize(std::max(set.size(), at + 1));
        set[at] |= std::uint64_t{1} << (id % 64);
    }
    return set;
}

std::vector<std::int64_t> BatchIds::starts(const std::int64_t* lengths) const {
    std::vector<std::int64_t> start(static_cast<std::size_t>(rows) + 1);
    if (flat) {
        row_offsets({lengths, rows}, 0, start.data());
        return start;
    }
    for (std::int64_t i = 0; i < rows; ++i) {
        start[static_cast<std::size_t>(i)] = padded_start(i, lengths[i], width, side);
    }
    return start;
}

Status CausalLabels::write(const Columns& columns, const BatchIds& batch) const {
    causal_labels(batch.ids, batch.count(), pad_id_, batch.labels);
    return check_special(columns);
}

Status CausalLabels::check_special(const Columns& columns) const {
    if (special_ < 0) {
        return {};
    }
    const auto index = static_cast<std::size_t>(special_);
    const std::int64_t count = columns.at(index).total;
    return columns.flatten(index, scratch<std::uint8_t>(count).get(), Kind::uint8, count);
}

MaskingLabels::MaskingLabels(const std::vector<std::int64_t>& special_ids, std::int64_t special, std::int64_t words,
                             int word_format)
    : special_set_(bit_set(special_ids)),
      special_(special),
      words_(words),
      word_format_(static_cast<WordFormat>(word_format)) {}

Status MaskingLabels::mark_special(const Columns& columns, const BatchIds& batch, std::uint8_t* special) const {
    const std::int64_t filled = batch.flat ? columns.at(batch.column).total : batch.count();
    std::fill(special + filled, special + batch.count(), std::uint8_t{1});
    if (special_ < 0) {
        special_tokens(batch.ids, filled, span_of(special_set_), special);
        return {};
    }
    const auto index = static_cast<std::size_t>(special_);
    if (batch.flat) {
        return columns.flatten(index, special, Kind::uint8, filled);
    }
    return columns.pad(index, special, Kind::uint8, batch.width, batch.side, py::int_(1));
}

Status MaskingLabels::words_of_rows(const Columns& columns, std::int64_t count, std::uint8_t* words) const {
    const Status status = columns.flatten(static_cast<std::size_t>(special_), words, Kind::uint8, count);
    if (status) {
        words_of_special(count, words);
    }
    return status;
}

Status MaskingLabels::write(const Columns& columns, const BatchIds& batch) const {
    const std::int64_t count = batch.count();
    const auto special = scratch<std::uint8_t>(count);
    Status status = mark_special(columns, batch, special.get());
    if (!status) {
        return status;
    }
    if (word_format_ == WordFormat::none) {
        words_of_special(count, special.get());
        return mask(columns, special.get(), batch);
    }
    const auto words = scratch<std::uint8_t>(count);
    std::fill_n(words.get(), count, word_none);
    const auto numbers = scratch<std::int64_t>(2 * batch.width);
    const Column& rows = columns.at(static_cast<std::size_t>(words_));
    const auto classify_row = word_format_ == WordFormat::offsets ? word_starts : word_starts_of_ids;
    const std::vector<std::int64_t>& lengths = columns.at(batch.column).lengths;
    const std::vector<std::int64_t> start = batch.starts(lengths.data());
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        const std::int64_t length = lengths[i], row_start = start[i];
        status = read_row_of_words(rows, i, word_format_, length, numbers.get());
        if (!status) {
            status.row = static_cast<std::int64_t>(i);
            return status;
        }
        std::uint8_t* const row_words = words.get() + row_start;
        classify_row(numbers.get(), special.get() + row_start, length, row_words);
        // What continues no word of its own row must not continue the last word of the row before.
        for (std::int64_t at = 0; at < length && row_words[at] != word_begins; ++at) {
            row_words[at] = word_none;
        }
    }
    return mask(columns, words.get(), batch);
}

void MaskingLabels::classify(const std::uint8_t* special, const std::int64_t* offsets, const std::int64_t* ids,
                             std::int64_t count, Span<const std::int64_t> start, const std::int64_t* lengths,
                             std::uint8_t* words) const {
    const auto derived = scratch<std::uint8_t>(special == nullptr ? count : 0);
    if (special == nullptr) {
        special_tokens(ids, count, span_of(special_set_), derived.get());
        special = derived.get();
    }
    if (offsets == nullptr) {
        std::copy_n(special, count, words);
        words_of_special(count, words);
        return;
    }
    for (std::int64_t i = 0; i < start.size; ++i) {
        word_starts(offsets + 2 * start[i], special + start[i], lengths[i], words + start[i]);
    }
}

namespace {

// Draws from a generator, as the reference does.
class MaskedLabels final : public MaskingLabels {
public:
    MaskedLabels(int type, py::object generator, bool every_word, double mlm_probability,
                 const ReplacementOptions& replacement, const std::vector<std::int64_t>& special_ids,
                 std::int64_t special, std::int64_t words, int word_format)
        : MaskingLabels(special_ids, special, words, word_format),
          type_(static_cast<GeneratorType>(type)),
          generator_(std::move(generator)),
          every_word_(every_word),
          probability_(mlm_probability),
          replacement_(checked_replacement(replacement)) {}

    template <typename Visit>
    void traverse(Visit& visit) const {
        visit(generator_);
    }

    using MaskingLabels::write;
    // On arrays, see `classify`.
    Status write(const std::uint8_t* special, const std::int64_t* offsets, const BatchIds& batch) const {
        const auto words = scratch<std::uint8_t>(batch.count());
        const std::vector<std::int64_t> lengths(static_cast<std::size_t>(batch.rows), batch.width);
        const std::vector<std::int64_t> start = batch.starts(lengths.data());
        classify(special, offsets, batch.ids, batch.count(), {start.data(), batch.rows}, lengths.data(), words.get());
        return mask({}, words.get(), batch);
    }

private:
    Status mask(const Columns&, const std::uint8_t* words, const BatchIds& batch) const override {
        const std::int64_t count = batch.count();
        const auto positions = scratch<std::int64_t>(count), other = scratch<std::int64_t>(count);
        const auto hit = scratch<std::uint8_t>(count);
        return with_draws(type_, generator_, every_word_, [&](rng::Draws& draws) {
            mask_tokens(draws, probability_, replacement_, words, count, batch.width, batch.ids, batch.labels,
                        positions.get(), hit.get(), other.get());
            return Status{};
        });
    }

    GeneratorType type_;
    py::object generator_;
    bool every_word_;
    double probability_;
    Replacement replacement_;
};

}  // namespace

void register_labels(py::module_& m) {
    bind_class<Labels>(m, "Labels");
    bind_class<CausalLabels, Labels>(m, "CausalLabels")
        .def(py::init<std::int64_t, std::int64_t>(), "pad_id"_a, "special"_a = -1);
    bind_class<MaskedLabels, Labels>(m, "MaskedLabels")
        .def(py::init<int, py::object, bool, double, const ReplacementOptions&, const std::vector<std::int64_t>&,
                      std::int64_t, std::int64_t, int>(),
             "generator_type"_a, "generator"_a, "every_word"_a, "mlm_probability"_a, "replacement"_a, "special_ids"_a,
             "special"_a = -1, "words"_a = -1, "word_format"_a = static_cast<int>(WordFormat::none))
        .def(
            "write",
            [](const MaskedLabels& self, Address ids, Address labels, std::int64_t rows, std::int64_t width,
               Address special,
               Address offsets) { self.write(special, offsets, {0, rows, width, Side::right, false, ids, labels}); },
            "ids"_a, "labels"_a, "rows"_a, "width"_a, "special"_a, "offsets"_a);
}

}  // namespace quadrat
