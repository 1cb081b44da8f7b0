#include <pybind11/stl.h>

#include "../../kernels/prefetch.hpp"
#include "../classes.hpp"
#include "labels.hpp"

namespace quadrat {

PhiloxLabels::PhiloxLabels(const PhiloxOptions& options, const std::vector<std::int64_t>& special_ids,
                           std::int64_t special, std::int64_t words, int word_format, std::int64_t keys,
                           std::optional<py::array_t<std::uint32_t>> epoch)
    : MaskingLabels(special_ids, special, words, word_format),
      masking_(checked_masking(options)),
      options_(options),
      keys_(keys),
      epoch_(std::move(epoch)) {
    if (epoch_ && epoch_->size() != 1) {
        throw py::value_error("epoch must be one number");
    }
}

std::uint32_t PhiloxLabels::epoch() const {
    // Another process may have written it.
    return epoch_ ? peek(epoch_->data()) : masking_.epoch;
}

PhiloxOptions PhiloxLabels::options() const {
    PhiloxOptions options = options_;
    std::get<1>(options) = epoch();
    return options;
}

Status PhiloxLabels::write_keys(const Columns& columns, Span<const std::int64_t> ids, Span<const std::int64_t> start,
                                const std::int64_t* lengths, std::uint64_t* out) const {
    return keys_ < 0 ? row_keys(ids, start, lengths, out)
                     : columns.numbers(static_cast<std::size_t>(keys_), out, Kind::int64);
}

Status PhiloxLabels::mask(const std::uint8_t* words, const std::uint64_t* keys, Span<const std::int64_t> start,
                          const std::int64_t* lengths, const BatchIds& batch) const {
    PhiloxMasking how = masking_;
    how.epoch = epoch();
    return philox_mask(how, {keys, start.size}, start.data, lengths, batch.count(), words, batch.ids, batch.labels);
}

Status PhiloxLabels::mask(const Columns& columns, const std::uint8_t* words, const BatchIds& batch) const {
    const std::vector<std::int64_t>& lengths = columns.at(batch.column).lengths;
    const std::vector<std::int64_t> start = batch.starts(lengths.data());
    const Span<const std::int64_t> starts{start.data(), batch.rows};
    std::vector<std::uint64_t> keys(lengths.size());
    const Status status = write_keys(columns, {batch.ids, batch.count()}, starts, lengths.data(), keys.data());
    return status ? mask(words, keys.data(), starts, lengths.data(), batch) : status;
}

Status PhiloxLabels::write(const std::uint8_t* special, const std::int64_t* offsets, const std::uint64_t* keys,
                           const std::int64_t* lengths, const BatchIds& batch) const {
    const std::vector<std::int64_t> full(lengths == nullptr ? static_cast<std::size_t>(batch.rows) : 0, batch.width);
    lengths = lengths == nullptr ? full.data() : lengths;
    std::int64_t left = batch.width;                 // of a flat batch
    for (std::int64_t i = 0; i < batch.rows; ++i) {  // before anything is read or written
        const std::int64_t room = batch.flat ? left : batch.width;
        if (lengths[i] < 0 || lengths[i] > room) {
            return {Code::row_too_long, i};
        }
        left -= lengths[i];
    }
    const std::vector<std::int64_t> start = batch.starts(lengths);
    const Span<const std::int64_t> starts{start.data(), batch.rows};
    const auto words = scratch<std::uint8_t>(batch.count());
    classify(special, offsets, batch.ids, batch.count(), starts, lengths, words.get());
    const auto own = scratch<std::uint64_t>(keys == nullptr ? batch.rows : 0);
    if (keys == nullptr) {
        if (const Status status = row_keys({batch.ids, batch.count()}, starts, lengths, own.get()); !status) {
            return status;
        }
        keys = own.get();
    }
    return mask(words.get(), keys, starts, lengths, batch);
}

void register_philox(py::module_& m) {
    bind_class<PhiloxLabels, Labels>(m, "PhiloxLabels")
        .def(py::init<const PhiloxOptions&, const std::vector<std::int64_t>&, std::int64_t, std::int64_t, int,
                      std::int64_t, std::optional<py::array_t<std::uint32_t>>>(),
             "options"_a, "special_ids"_a, "special"_a = -1, "words"_a = -1,
             "word_format"_a = static_cast<int>(WordFormat::none), "keys"_a = -1, "epoch"_a = py::none())
        .def(
            "write",
            [](const PhiloxLabels& self, Address ids, Address labels, std::int64_t rows, std::int64_t width, Side left,
               bool flat, Address lengths, Address keys, Address special, Address offsets) {
                return self.write(special, offsets, keys, lengths, {0, rows, width, left, flat, ids, labels});
            },
            "ids"_a, "labels"_a, "rows"_a, "width"_a, "left"_a, "flat"_a, "lengths"_a, "keys"_a, "special"_a,
            "offsets"_a);
}

}  // namespace quadrat
