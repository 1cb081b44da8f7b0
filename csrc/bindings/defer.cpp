#include "defer.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>

#include "decode.hpp"
#include "defer_buffer.hpp"
#include "defer_masking.hpp"
#include "execute.hpp"

namespace quadrat {
namespace {

const Labels* labels_of(const Plan& plan, const Step* step) {
    return step == nullptr ? nullptr : &py::object(plan.values[step->name]).cast<const Labels&>();
}

class Deferral {
public:
    Deferral(const Columns& columns, const Plan& plan, const Layout& layout)
        : columns_(columns),
          plan_(plan),
          layout_(layout),
          execution_(columns, plan, layout),
          labels_(labels_of(plan, execution_.labels())),
          causal_(dynamic_cast<const CausalLabels*>(labels_)),
          masking_(columns, plan.steps, execution_.ids(), labels_),
          buffer_(columns),
          places_(plan.steps.size()) {}

    Status place(std::size_t i) {
        const Step& step = plan_.steps[i];
        Place& place = places_[i];
        if (step.action == Action::hold) {
            return {};
        }
        if (step.action == Action::longest) {
            place.total = columns_.at(step.index).max_length;
            return {};
        }
        place.shape = execution_.output(step).shape;
        switch (step.action) {
            case Action::mask:
            case Action::positions:
            case Action::sequences:
            case Action::bounds:
                place.offsets = buffer_.offsets(step.index);
                return {};
            case Action::numbers:
                place.values = buffer_.values(step.index, step.kind, i, true);
                place.total = place.shape[0];
                return {};
            case Action::labels:
                return place_labels(&place);
            default:
                return place_rows(step, i, &place);
        }
    }

    Status write(const Interop& interop, std::size_t* failed) {
        buffer_.allocate_on(interop);
        Status status = buffer_.write(failed);
        if (status && masking_) {
            *failed = number_of(execution_.labels());
            status = masking_.write(buffer_, places_[number_of(execution_.ids())]);
        }
        for (const Step* const step : {execution_.ids(), execution_.labels()}) {
            if (status && draws()) {
                *failed = number_of(step);
                const Place& place = places_[*failed];
                status = execution_.write(*step, place.shape.back(), buffer_.at<void>(place.values));
            }
        }
        return status;
    }

    py::object made(const DeferredFactory& factory) const {
        const std::int64_t rows = columns_.columns.empty() ? 0 : columns_.count(0);
        py::tuple places(places_.size());
        for (std::size_t i = 0; i < places_.size(); ++i) {
            places[i] = places_[i].as_tuple();
        }
        columns_.disturb();
        return factory.make(buffer_.tensor, plan_.given, places, rows, layout_.as_tuple(), masking_.as_object(),
                            factory.wrapped);
    }

private:
    // Draws from a generator are the host's business: then ids and labels are written here, as they come out.
    bool draws() const { return labels_ != nullptr && causal_ == nullptr && !masking_; }
    std::size_t number_of(const Step* step) const { return static_cast<std::size_t>(step - plan_.steps.data()); }

    void reserve_output(const Step& step, Place* place) {
        place->total = std::accumulate(place->shape.begin(), place->shape.end(), std::int64_t{1}, std::multiplies<>());
        place->values = buffer_.reserve(place->total, step.kind);
    }

    Status place_labels(Place* place) {
        const Step& step = *execution_.labels();
        if (execution_.ids() == nullptr || place != &places_[number_of(&step)]) {
            return {Code::bad_argument};
        }
        if (masking_) {
            masking_.reserve(&buffer_);
        } else if (causal_ != nullptr) {
            place->total = causal_->pad_id();
        } else {
            reserve_output(step, place);
        }
        return {};
    }

    Status place_rows(const Step& step, std::size_t i, Place* place) {
        const Column& column = columns_.at(step.index);
        const std::int64_t extent = place->shape.back();
        const bool shifts = step.action == Action::shift, flat = shifts || step.action == Action::join;
        const auto longer = std::find_if(column.lengths.begin(), column.lengths.end(),
                                         [&](std::int64_t length) { return !flat && length > extent; });
        if (longer != column.lengths.end()) {
            return {Code::row_too_long, longer - column.lengths.begin()};
        }
        const bool gaps = flat ? execution_.filled(step) < extent : column.min_length < extent;
        std::uint64_t element = 0;
        if (gaps) {
            PyObject* const value = PyDict_GetItemWithError(plan_.values.ptr(), step.name.ptr());
            if (!decode_number(value, step.kind, &element)) {
                return {Code::out_of_range};
            }
            place->fill = py::reinterpret_borrow<py::object>(value);
        }
        if (shifts && !decode_number(layout_.separator.ptr(), step.kind, &element)) {
            return {Code::out_of_range};
        }
        const bool is_ids = labels_ != nullptr && &step == execution_.ids();
        if (is_ids && draws()) {
            reserve_output(step, place);
            return {};
        }
        place->total = column.total;
        place->values = buffer_.values(step.index, step.kind, i);
        place->offsets = gaps || shifts || is_ids ? buffer_.offsets(step.index) : nowhere;
        place->start = shifts ? buffer_.starts(step.index) : nowhere;
        return {};
    }

    const Columns& columns_;
    const Plan& plan_;
    const Layout& layout_;
    Execution execution_;
    const Labels* labels_;
    const CausalLabels* causal_;
    DeferredMasking masking_;
    Buffer buffer_;
    std::vector<Place> places_;
};

}  // namespace

Status defer(const Columns& columns, const Plan& plan, const Layout& layout, const Interop& interop,
             const DeferredFactory& factory, py::object* batch, std::size_t* failed) {
    Deferral deferral(columns, plan, layout);
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
        const Status status = deferral.place(i);
        if (!status) {
            *failed = i;
            return status;
        }
    }
    const Status status = deferral.write(interop, failed);
    if (status) {
        *batch = deferral.made(factory);
    }
    return status;
}

}  // namespace quadrat
