#include <pybind11/stl.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "../input/python_number.hpp"
#include "../labels/labels.hpp"
#include "../plan/execute.hpp"

namespace quadrat {
namespace {

constexpr std::int64_t nowhere = -1;

// Where an output's parts are, see DeferredFactory.
struct Parts {
    std::int64_t offsets = nowhere, values = nowhere, total = 0;
    py::object fill = py::none();
    std::vector<std::int64_t> shape;
    std::int64_t extent = 0;

    py::tuple as_tuple() const { return py::make_tuple(offsets, values, total, fill, py::tuple(py::cast(shape))); }
};

// The buffer: parts are reserved first, then written. What several outputs need is there once.
class Buffer {
public:
    Buffer(const Columns& columns, const Execution& execution) : columns_(columns), execution_(execution) {}

    std::int64_t reserve(std::int64_t count, Kind kind) {
        const std::int64_t at = size_;
        size_ = round_up(size_ + count * static_cast<std::int64_t>(item_size(kind)), alignment);
        return at;
    }

    // Where sequences begin, and where the last one ends. Columns whose sequences are equally long share them.
    std::int64_t offsets(std::size_t index) {
        const std::vector<std::int64_t>& lengths = execution_.sequences(columns_.at(index));
        for (const Offsets& known : offsets_) {
            if (*known.lengths == lengths) {
                return known.at;
            }
        }
        offsets_.push_back({&lengths, reserve(static_cast<std::int64_t>(lengths.size()) + 1, Kind::int64)});
        return offsets_.back().at;
    }

    // The rows of a column one after the other, or its numbers.
    std::int64_t values(std::size_t index, Kind kind, std::size_t step, bool numbers = false) {
        for (const Values& part : values_) {
            if (part.index == index && part.kind == kind) {
                return part.at;
            }
        }
        const Column& column = columns_.at(index);
        const auto rows = static_cast<std::int64_t>(column.rows.size());
        values_.push_back({index, reserve(numbers ? rows : column.total * column.inner, kind), kind, step, numbers});
        return values_.back().at;
    }

    void allocate_on(const Interop& interop) {
        Allocation memory = size_ > most_in_message
                                ? BatchMemory(interop, Framework::torch, {{{size_}, Kind::uint8}}).take()
                                : allocate(interop, Framework::torch, {size_}, Kind::uint8);
        tensor = std::move(memory.array);
        data_ = static_cast<char*>(memory.data);
    }

    template <typename T>
    T* at(std::int64_t place) const {
        return reinterpret_cast<T*>(data_ + place);
    }

    Status write(std::size_t* failed) const {
        for (const Offsets& part : offsets_) {
            row_offsets(span_of(*part.lengths), 0, at<std::int64_t>(part.at));
        }
        for (const Values& part : values_) {
            *failed = part.step;
            void* const out = data_ + part.at;
            const Status status = part.numbers
                                      ? columns_.numbers(part.index, out, part.kind)
                                      : columns_.flatten(part.index, out, part.kind, columns_.at(part.index).total);
            if (!status) {
                return status;
            }
        }
        return {};
    }

    py::object tensor;

private:
    struct Offsets {
        const std::vector<std::int64_t>* lengths;
        std::int64_t at;
    };
    struct Values {
        std::size_t index;
        std::int64_t at;
        Kind kind;
        std::size_t step;  // the first that needs it
        bool numbers;
    };

    const Columns& columns_;
    const Execution& execution_;
    std::vector<Offsets> offsets_;
    std::vector<Values> values_;
    std::int64_t size_ = 0;
    char* data_ = nullptr;
};

const Labels* labels_of(const Plan& plan, const Step* step) {
    return step == nullptr ? nullptr : &py::object(plan.values[step->name]).cast<const Labels&>();
}

// Draws by counter need no order, so that only what they are made of travels: see `masking` of DeferredFactory. False
// where masking cannot be deferred: where draws come from a generator, for whole words, and for flat ids.
class DeferredMasking {
public:
    DeferredMasking(const Columns& columns, const std::vector<Step>& steps, const Step* ids, const Labels* labels)
        : columns_(columns) {
        const auto* const philox = dynamic_cast<const PhiloxLabels*>(labels);
        if (philox == nullptr || philox->has_words() || ids == nullptr) {
            return;
        }
        index_ = ids->index;
        const auto outputs = std::count_if(steps.begin(), steps.end(), [&](const Step& step) {
            return step.index == index_ && (step.action == Action::pad || step.action == Action::stack);
        });
        const std::int64_t special = philox->special_column();
        if (outputs == 1 && (special < 0 || columns.first_difference(static_cast<std::size_t>(special), index_) < 0)) {
            labels_ = philox;
        }
    }

    explicit operator bool() const { return labels_ != nullptr; }

    void reserve(Buffer* buffer) {
        keys_ = buffer->reserve(columns_.count(index_), Kind::uint64);
        if (labels_->special_column() >= 0) {
            words_ = buffer->reserve(columns_.at(index_).total, Kind::uint8);
        } else {
            set_ = buffer->reserve(static_cast<std::int64_t>(labels_->special_set().size()), Kind::uint64);
        }
    }

    // ids: where they are, which is written already.
    Status write(const Buffer& buffer, const Parts& ids) const {
        const Column& column = columns_.at(index_);
        const Span<const std::int64_t> start{buffer.at<std::int64_t>(ids.offsets), columns_.count(index_)};
        const Status status = labels_->write_keys(columns_, {buffer.at<std::int64_t>(ids.values), column.total}, start,
                                                  column.lengths.data(), buffer.at<std::uint64_t>(keys_));
        if (!status) {
            return status;
        }
        if (words_ != nowhere) {
            return labels_->words_of_rows(columns_, column.total, buffer.at<std::uint8_t>(words_));
        }
        const std::vector<std::uint64_t>& set = labels_->special_set();
        std::copy(set.begin(), set.end(), buffer.at<std::uint64_t>(set_));
        return {};
    }

    py::object as_object() const {
        if (labels_ == nullptr) {
            return py::none();
        }
        return py::make_tuple(labels_->options(), keys_, words_, set_, labels_->special_set().size());
    }

private:
    const Columns& columns_;
    std::size_t index_ = 0;  // of the ids
    const PhiloxLabels* labels_ = nullptr;
    std::int64_t keys_ = nowhere, words_ = nowhere, set_ = nowhere;
};

class Deferral {
public:
    Deferral(const Columns& columns, const Plan& plan, const BatchLayout& layout)
        : columns_(columns),
          plan_(plan),
          layout_(layout),
          execution_(columns, plan, layout),
          labels_(labels_of(plan, execution_.labels())),
          causal_(dynamic_cast<const CausalLabels*>(labels_)),
          masking_(columns, plan.steps, execution_.ids(), labels_),
          buffer_(columns, execution_),
          parts_(plan.steps.size()) {}

    Status place(std::size_t i) {
        const Step& step = plan_.steps[i];
        Parts& parts = parts_[i];
        if (step.action == Action::hold) {
            return {};
        }
        const bool padded = step.action < Action::join;  // actions that keep rows apart
        if (!layout_.plain() || step.action >= Action::token_bounds || (padded && layout_.seq_lengths >= 0)) {
            return {Code::bad_argument};  // such batches are made before they are sent
        }
        if (const Status status = execution_.documents_status(); !status) {
            return status;
        }
        if (step.action == Action::longest) {
            parts.total = execution_.longest(columns_.at(step.index));
            return {};
        }
        const Output output = execution_.output(step);
        parts.extent = output.extent();
        parts.shape = output.shape;
        switch (step.action) {
            case Action::mask:
            case Action::positions:
            case Action::sequences:
            case Action::bounds:
                parts.offsets = buffer_.offsets(step.index);
                return {};
            case Action::numbers:
                parts.values = buffer_.values(step.index, step.kind, i, true);
                parts.total = parts.shape[0];
                return {};
            case Action::labels:
                return place_labels(i, &parts);
            default:
                return place_rows(step, i, &parts);
        }
    }

    Status write(const Interop& interop, std::size_t* failed) {
        buffer_.allocate_on(interop);
        Status status = buffer_.write(failed);
        if (status && masking_) {
            *failed = number_of(execution_.labels());
            status = masking_.write(buffer_, parts_[number_of(execution_.ids())]);
        }
        if (status && causal_ != nullptr) {
            *failed = number_of(execution_.labels());
            status = causal_->check_special(columns_);
        }
        for (std::size_t i = 0; i < whole_.size() && status; ++i) {
            *failed = whole_[i];
            const Parts& parts = parts_[whole_[i]];
            status = execution_.write(plan_.steps[whole_[i]], parts.extent, buffer_.at<void>(parts.values));
        }
        return status;
    }

    py::object batch(const DeferredFactory& factory) const {
        const std::int64_t rows = columns_.columns.empty() ? 0 : span_of(execution_.sequences(columns_.at(0))).size;
        py::tuple places(parts_.size());
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            places[i] = parts_[i].as_tuple();
        }
        BatchLayout layout = layout_;
        layout.seq_lengths = -1;  // the rows of a deferred batch are the documents
        columns_.invalidate();
        return factory.make(buffer_.tensor, plan_.tuples, places, rows, layout.as_tuple(), masking_.as_object(),
                            factory.wrapped);
    }

private:
    // Draws from a generator are the host's business: then ids and labels are written here, as they come out.
    bool draws() const { return labels_ != nullptr && causal_ == nullptr && !masking_; }
    std::size_t number_of(const Step* step) const { return static_cast<std::size_t>(step - plan_.steps.data()); }

    // An output that is written here, as it comes out.
    void place_whole(std::size_t i, Kind kind, Parts* parts) {
        parts->total = std::accumulate(parts->shape.begin(), parts->shape.end(), std::int64_t{1}, std::multiplies<>());
        parts->values = buffer_.reserve(parts->total, kind);
        whole_.push_back(i);
    }

    Status place_labels(std::size_t i, Parts* parts) {
        const Step* const step = execution_.labels();
        if (step == nullptr || execution_.ids() == nullptr || i != number_of(step)) {
            return {Code::bad_argument};
        }
        if (masking_) {
            masking_.reserve(&buffer_);
        } else if (causal_ != nullptr) {
            parts->total = causal_->pad_id;
        } else {
            place_whole(i, Kind::int64, parts);
        }
        return {};
    }

    Status place_rows(const Step& step, std::size_t i, Parts* parts) {
        const Column& column = columns_.at(step.index);
        const std::int64_t extent = parts->extent;
        const bool shifts = step.action == Action::shift, flat = shifts || step.action == Action::join;
        const auto longer = std::find_if(column.lengths.begin(), column.lengths.end(),
                                         [&](std::int64_t length) { return !flat && length > extent; });
        if (longer != column.lengths.end()) {
            return {Code::row_too_long, longer - column.lengths.begin()};
        }
        const bool gaps = flat ? execution_.filled(step) < extent : column.min_length < extent;
        std::uint64_t fill = 0, separator = 0;
        if (gaps) {
            PyObject* const value = PyDict_GetItemWithError(plan_.values.ptr(), step.name.ptr());
            if (!decode_number(value, step.kind, &fill)) {
                return {Code::out_of_range};
            }
            parts->fill = py::reinterpret_borrow<py::object>(value);
        }
        if (shifts && !decode_number(layout_.separator.ptr(), step.kind, &separator)) {
            return {Code::out_of_range};
        }
        const bool is_ids = labels_ != nullptr && &step == execution_.ids();
        // No kernel has a place for an empty row, or two values to fill with.
        const bool odd = shifts && (column.min_length == 0 || (gaps && fill != separator));
        if (odd || (is_ids && draws())) {
            place_whole(i, step.kind, parts);
            return {};
        }
        parts->total = column.total * column.inner;
        parts->values = buffer_.values(step.index, step.kind, i);
        parts->offsets = gaps || shifts || is_ids ? buffer_.offsets(step.index) : nowhere;
        return {};
    }

    const Columns& columns_;
    const Plan& plan_;
    const BatchLayout& layout_;
    Execution execution_;
    const Labels* labels_;
    const CausalLabels* causal_;
    DeferredMasking masking_;
    Buffer buffer_;
    std::vector<Parts> parts_;
    std::vector<std::size_t> whole_;  // the steps that are written here
};

}  // namespace

Status defer(const Columns& columns, const Plan& plan, const BatchLayout& layout, const Interop& interop,
             const DeferredFactory& factory, py::object* batch, std::size_t* failed) {
    Deferral deferral(columns, plan, layout);
    for (*failed = 0; *failed < plan.steps.size(); ++*failed) {
        if (const Status status = deferral.place(*failed); !status) {
            return status;
        }
    }
    const Status status = deferral.write(interop, failed);
    if (status) {
        *batch = deferral.batch(factory);
    }
    return status;
}

}  // namespace quadrat
