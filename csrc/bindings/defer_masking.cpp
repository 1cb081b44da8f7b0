#include "defer_masking.hpp"

#include <algorithm>

namespace quadrat {

DeferredMasking::DeferredMasking(const Columns& columns, const std::vector<Step>& steps, const Step* ids,
                                 const Labels* labels)
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

void DeferredMasking::reserve(Buffer* buffer) {
    keys_ = buffer->reserve(columns_.count(index_), Kind::uint64);
    if (labels_->special_column() >= 0) {
        words_ = buffer->reserve(columns_.at(index_).total, Kind::uint8);
    } else {
        set_ = buffer->reserve(static_cast<std::int64_t>(labels_->special_set().size()), Kind::uint64);
    }
}

Status DeferredMasking::write(const Buffer& buffer, const Place& ids) const {
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

py::object DeferredMasking::as_object() const {
    if (labels_ == nullptr) {
        return py::none();
    }
    return py::make_tuple(labels_->options(), keys_, words_, set_, labels_->special_set().size());
}

}  // namespace quadrat
