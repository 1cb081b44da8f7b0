#include "philox_labels.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "../../kernels/row_keys.hpp"
#include "../register.hpp"
#include "../report.hpp"

namespace quadrat {
namespace {

template <typename T>
T* pointer(std::uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

}  // namespace

PhiloxLabels::PhiloxLabels(const PhiloxOptions& options, const std::vector<std::int64_t>& special_ids,
                           std::int64_t special, std::int64_t words, WordSource word_source, std::int64_t keys,
                           std::optional<py::array_t<std::uint32_t>> epoch)
    : MaskingLabels(special_ids, special, words, word_source),
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
    return epoch_ ? *static_cast<const volatile std::uint32_t*>(epoch_->data()) : masking_.epoch;
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
    const std::unique_ptr<std::uint64_t[]> own(new std::uint64_t[static_cast<std::size_t>(start.size)]);
    if (keys == nullptr) {
        const Status status = row_keys({batch.ids, batch.count()}, start, lengths, own.get());
        if (!status) {
            return status;
        }
        keys = own.get();
    }
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
    std::int64_t left = batch.form == BatchIds::Form::flat ? batch.width : 0;
    for (std::int64_t i = 0; i < batch.rows; ++i) {  // before anything is read or written
        const std::int64_t room = batch.form == BatchIds::Form::flat ? left : batch.width;
        if (lengths[i] < 0 || lengths[i] > room) {
            return {Code::row_too_long, i};
        }
        left -= lengths[i];
    }
    const std::vector<std::int64_t> start = batch.starts(lengths);
    const Span<const std::int64_t> starts{start.data(), batch.rows};
    const std::unique_ptr<std::uint8_t[]> words(new std::uint8_t[static_cast<std::size_t>(batch.count())]);
    classify(special, offsets, batch.ids, batch.count(), starts, lengths, words.get());
    return mask(words.get(), keys, starts, lengths, batch);
}

void register_philox(py::module_& m) {
    py::class_<PhiloxLabels, Labels>(m, "PhiloxLabels")
        .def(py::init([](const PhiloxOptions& options, const std::vector<std::int64_t>& special_ids,
                         std::int64_t special, std::int64_t words, int word_source, std::int64_t keys,
                         std::optional<py::array_t<std::uint32_t>> epoch) {
                 return std::make_unique<PhiloxLabels>(options, special_ids, special, words,
                                                       static_cast<WordSource>(word_source), keys, std::move(epoch));
             }),
             py::arg("options"), py::arg("special_ids"), py::arg("special") = -1, py::arg("words") = -1,
             py::arg("word_source") = static_cast<int>(WordSource::none), py::arg("keys") = -1,
             py::arg("epoch") = py::none())
        .def(
            "write",
            [](const PhiloxLabels& self, std::uintptr_t ids, std::uintptr_t labels, std::int64_t rows,
               std::int64_t width, bool left, bool flat, std::uintptr_t lengths, std::uintptr_t keys,
               std::uintptr_t special, std::uintptr_t offsets) {
                const BatchIds batch{0,
                                     rows,
                                     width,
                                     flat   ? BatchIds::Form::flat
                                     : left ? BatchIds::Form::left
                                            : BatchIds::Form::right,
                                     pointer<std::int64_t>(ids),
                                     pointer<std::int64_t>(labels)};
                return report(self.write(pointer<const std::uint8_t>(special), pointer<const std::int64_t>(offsets),
                                         pointer<const std::uint64_t>(keys), pointer<const std::int64_t>(lengths),
                                         batch));
            },
            py::arg("ids"), py::arg("labels"), py::arg("rows"), py::arg("width"), py::arg("left"), py::arg("flat"),
            py::arg("lengths"), py::arg("keys"), py::arg("special"), py::arg("offsets"));
    m.def(
        "row_keys",
        [](std::uintptr_t values, std::int64_t values_size, std::uintptr_t start, std::uintptr_t lengths,
           std::int64_t rows, std::uintptr_t out) {
            return report(row_keys({pointer<const std::int64_t>(values), values_size},
                                   {pointer<const std::int64_t>(start), rows}, pointer<const std::int64_t>(lengths),
                                   pointer<std::uint64_t>(out)));
        },
        py::arg("values"), py::arg("values_size"), py::arg("start"), py::arg("lengths"), py::arg("rows"),
        py::arg("out"));
    m.def(
        "philox_mask",
        [](const PhiloxOptions& options, std::uintptr_t row_keys, std::uintptr_t start, std::uintptr_t lengths,
           std::int64_t rows, std::uintptr_t words, std::uintptr_t ids, std::uintptr_t labels, std::int64_t count) {
            const PhiloxMasking how = checked_masking(options);
            return report(philox_mask(how, {pointer<const std::uint64_t>(row_keys), rows},
                                      pointer<const std::int64_t>(start), pointer<const std::int64_t>(lengths), count,
                                      pointer<const std::uint8_t>(words), pointer<std::int64_t>(ids),
                                      pointer<std::int64_t>(labels)));
        },
        py::arg("options"), py::arg("row_keys"), py::arg("start"), py::arg("lengths"), py::arg("rows"),
        py::arg("words"), py::arg("ids"), py::arg("labels"), py::arg("count"));
    // Both ways the words are computed: by one counter, and for n places in a row.
    m.def(
        "philox",
        [](std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key, int n) {
            const rng::Philox at{{counter[0], counter[1], counter[2], counter[3]}, {key[0], key[1]}};
            const rng::PhiloxWords words = rng::philox(at);
            std::vector<std::uint32_t> run(rng::philox_most);
            rng::philox_run(at, std::min(std::max(n, 0), rng::philox_most), run.data());
            run.resize(static_cast<std::size_t>(std::min(std::max(n, 0), rng::philox_most)));
            return py::make_tuple(py::make_tuple(words.word[0], words.word[1], words.word[2], words.word[3]), run);
        },
        py::arg("counter"), py::arg("key"), py::arg("n"));
}

}  // namespace quadrat
