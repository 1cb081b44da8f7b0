#include "defer.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "../kernels/row.hpp"
#include "decode.hpp"
#include "labels.hpp"
#include "register.hpp"

namespace quadrat {
namespace {

constexpr std::int64_t nowhere = -1;
constexpr std::int64_t alignment = 64;  // bytes: a cache line, and more than any vector load on a GPU

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// Where an output's parts are, see defer.hpp.
struct Place {
    std::int64_t offsets = nowhere, values = nowhere, total = 0;
    py::object fill = py::none();
    std::vector<std::int64_t> shape;
    std::int64_t start = nowhere;

    py::tuple as_tuple() const {
        py::tuple extents(shape.size());
        for (std::size_t i = 0; i < shape.size(); ++i) {
            extents[i] = shape[i];
        }
        return py::make_tuple(offsets, values, total, fill, std::move(extents), start);
    }
};

// The buffer: pieces are reserved first, then written. What several outputs need is there once.
class Buffer {
public:
    explicit Buffer(const Columns& columns) : columns_(columns) {}

    std::int64_t reserve(std::int64_t count, Kind kind) {
        const std::int64_t at = size_;
        size_ = round_up(size_ + count * static_cast<std::int64_t>(item_size(kind)), alignment);
        return at;
    }

    // Columns whose rows are equally long share their offsets.
    std::int64_t offsets(std::size_t index) {
        const std::vector<std::int64_t>& lengths = columns_.at(index).lengths;
        for (const Piece& piece : offsets_) {
            if (piece.index == index || columns_.at(piece.index).lengths == lengths) {
                return piece.at;
            }
        }
        offsets_.push_back({index, reserve(static_cast<std::int64_t>(lengths.size()) + 1, Kind::int64), Kind::int64});
        return offsets_.back().at;
    }

    // The rows of a column one after the other, or its numbers.
    std::int64_t values(std::size_t index, Kind kind, std::size_t step, bool numbers = false) {
        for (const Piece& piece : values_) {
            if (piece.index == index && piece.kind == kind) {
                return piece.at;
            }
        }
        const Column& column = columns_.at(index);
        const auto rows = static_cast<std::int64_t>(column.rows.size());
        values_.push_back({index, reserve(numbers ? rows : column.total, kind), kind, step, numbers});
        return values_.back().at;
    }

    // Where the rows start once an empty one takes a place too; `offsets` where there is none.
    std::int64_t starts(std::size_t index) {
        if (columns_.at(index).min_length > 0) {
            return offsets(index);
        }
        starts_.push_back({index, reserve(columns_.count(index), Kind::int64), Kind::int64});
        return starts_.back().at;
    }

    void allocate_on(const Interop& interop) {
        BatchMemory memory(interop, Framework::torch);
        if (memory.shares()) {
            memory.expect({{size_}, Kind::uint8});
        }
        Allocation made = memory.take({{size_}, Kind::uint8});
        tensor = std::move(made.array);
        data_ = static_cast<char*>(made.data);
    }

    template <typename T>
    T* at(std::int64_t place) const {
        return reinterpret_cast<T*>(data_ + place);
    }

    Status write(std::size_t* failed) const {
        for (const Piece& piece : offsets_) {
            auto* out = at<std::int64_t>(piece.at);
            std::int64_t sum = 0;
            *out = 0;
            for (const std::int64_t length : columns_.at(piece.index).lengths) {
                *++out = sum += length;
            }
        }
        for (const Piece& piece : starts_) {
            auto* out = at<std::int64_t>(piece.at);
            std::int64_t sum = 0;
            for (const std::int64_t length : columns_.at(piece.index).lengths) {
                *out++ = sum;
                sum += std::max<std::int64_t>(length, 1);
            }
        }
        for (const Piece& piece : values_) {
            *failed = piece.step;
            void* const out = data_ + piece.at;
            const Status status = piece.numbers
                                      ? columns_.numbers(piece.index, out, piece.kind)
                                      : columns_.flatten(piece.index, out, piece.kind, columns_.at(piece.index).total);
            if (!status) {
                return status;
            }
        }
        return {};
    }

    py::object tensor;

private:
    struct Piece {
        std::size_t index;
        std::int64_t at;
        Kind kind;
        std::size_t step = 0;  // the first that needs it
        bool numbers = false;
    };

    const Columns& columns_;
    std::vector<Piece> offsets_, values_, starts_;
    std::int64_t size_ = 0;
    char* data_ = nullptr;
};

py::tuple layout_of(const std::vector<Place>& places) {
    py::tuple layout(places.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
        layout[i] = places[i].as_tuple();
    }
    return layout;
}

// What fills the gaps of an output; a status where it is not a number that the output holds.
Status find_fill(const py::dict& values, const py::object& name, Kind kind, Place* place) {
    PyObject* const value = PyDict_GetItemWithError(values.ptr(), name.ptr());
    std::uint64_t element = 0;
    if (!decode_number(value, kind, &element)) {
        return {Code::out_of_range};
    }
    place->fill = py::reinterpret_borrow<py::object>(value);
    return {};
}

// The ids of a batch as numbers at hand, and the labels that are drawn for them: draws are the host's business.
struct Drawn {
    const Labels* labels = nullptr;  // null: nothing is drawn
    std::size_t index = 0;           // the column of the ids
    std::size_t ids_step = 0, labels_step = 0;

    bool is_of(std::size_t column) const { return labels != nullptr && column == index; }
};

template <typename Steps, typename Action>
Drawn find_drawn(const Steps& steps, Action action, const py::dict& values, bool* derived) {
    Drawn drawn;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].action == action) {
            *derived = true;
            const auto& labels = py::object(values[steps[i].name]).template cast<const Labels&>();
            drawn.index = steps[i].index;
            drawn.labels_step = i;
            drawn.labels = dynamic_cast<const CausalLabels*>(&labels) == nullptr ? &labels : nullptr;
        }
    }
    return drawn;
}

}  // namespace

Status defer(const Columns& columns, const py::tuple& steps, const std::vector<Step>& parsed, const py::dict& values,
             const Interop& interop, const Shape& batch_shape, const DeferredFactory& factory, py::object* batch,
             std::size_t* failed) {
    bool derived = false;
    Drawn drawn = find_drawn(parsed, Action::labels, values, &derived);
    Buffer buffer(columns);
    std::vector<Place> places(parsed.size());
    bool has_ids = false;
    for (std::size_t i = 0; i < parsed.size(); ++i) {
        const auto& [name, index, action, kind] = parsed[i];
        Place& place = places[i];
        *failed = i;
        if (action == Action::hold) {
            continue;
        }
        const Column& column = columns.at(index);
        const std::int64_t rows = columns.count(index);
        place.shape.push_back(rows);
        if (action == Action::numbers) {
            place.values = buffer.values(index, kind, i, true);
            place.total = rows;
            continue;
        }
        std::int64_t extent = batch_shape.width;
        if (action == Action::stack || action == Action::pad_own) {
            extent = action == Action::stack
                         ? column.max_length
                         : round_up(column.max_length, std::max<std::int64_t>(batch_shape.multiple_of, 1));
        } else if (action == Action::labels) {
            extent = has_ids ? places[drawn.ids_step].shape[1] : 0;
        }
        place.shape.push_back(extent);
        if (action == Action::mask) {
            place.offsets = buffer.offsets(index);
            continue;
        }
        if (action == Action::labels) {
            if (!has_ids) {
                return {Code::bad_argument};
            }
            if (drawn.labels == nullptr) {
                place.total = py::object(values[name]).cast<const CausalLabels&>().pad_id();
            } else {
                place.total = rows * extent;
                place.values = buffer.reserve(place.total, kind);
            }
            continue;
        }
        const auto longer = std::find_if(column.lengths.begin(), column.lengths.end(),
                                         [extent = extent](std::int64_t length) { return length > extent; });
        if (longer != column.lengths.end()) {
            return {Code::row_too_long, longer - column.lengths.begin()};
        }
        if (column.min_length < extent) {
            const Status status = find_fill(values, name, kind, &place);
            if (!status) {
                return status;
            }
        }
        const bool is_ids = derived && index == drawn.index && kind == Kind::int64 && action != Action::pad_own;
        if (is_ids) {
            has_ids = true;
            drawn.ids_step = i;
        }
        if (is_ids && drawn.labels != nullptr) {
            place.total = rows * extent;
            place.values = buffer.reserve(place.total, kind);
            continue;
        }
        place.total = column.total;
        place.values = buffer.values(index, kind, i);
        if (is_ids || column.min_length < extent) {
            place.offsets = buffer.offsets(index);
        }
    }
    buffer.allocate_on(interop);
    Status status = buffer.write(failed);
    if (status && drawn.labels != nullptr) {
        const Place &ids = places[drawn.ids_step], &labels = places[drawn.labels_step];
        const std::int64_t rows = ids.shape[0], width = ids.shape[1];
        auto* const out = buffer.at<std::int64_t>(ids.values);
        *failed = drawn.ids_step;
        status = columns.pad(drawn.index, out, Kind::int64, width, batch_shape.left, ids.fill);
        if (status) {
            const auto form = batch_shape.left ? BatchIds::Form::left : BatchIds::Form::right;
            *failed = drawn.labels_step;
            status = drawn.labels->write(columns,
                                         {drawn.index, rows, width, form, out, buffer.at<std::int64_t>(labels.values)});
        }
    }
    if (status) {
        const std::int64_t rows = columns.columns.empty() ? 0 : columns.count(0);
        *batch =
            factory.make(buffer.tensor, steps, layout_of(places), rows,
                         py::make_tuple(batch_shape.width, batch_shape.multiple_of, batch_shape.left), factory.wrapped);
    }
    return status;
}

namespace {

// What an output of a flat batch is made of.
Status place_flat(const Columns& columns, const FlatPlan& plan, const std::vector<FlatStep>& steps, std::size_t i,
                  const Drawn& drawn, Buffer* buffer, Place* place) {
    const auto& [name, index, action, kind] = steps[i];
    const Column& column = columns.at(index);
    if (action == FlatAction::longest) {
        place->total = column.max_length;
        return {};
    }
    if (action == FlatAction::bounds) {
        place->offsets = buffer->offsets(index);
        place->shape = {columns.count(index) + 1};
        return {};
    }
    std::int64_t filled = column.total;
    if (action == FlatAction::shift) {
        filled = 0;
        for (const std::int64_t length : column.lengths) {
            filled += std::max<std::int64_t>(length, 1);
        }
    }
    const std::int64_t size = round_up(filled, plan.multiple_of);
    place->shape = {1, size};
    place->total = column.total;
    if (action == FlatAction::positions || action == FlatAction::sequences) {
        place->offsets = buffer->offsets(index);
        return {};
    }
    if (action == FlatAction::derive) {
        place->total = size;
        place->values = buffer->reserve(size, kind);
        return drawn.labels == nullptr ? Status{Code::bad_argument} : Status{};
    }
    if (size > filled) {
        const Status status = find_fill(plan.values, name, kind, place);
        if (!status) {
            return status;
        }
    }
    if (action == FlatAction::shift) {
        std::uint64_t separator = 0;
        if (!decode_number(plan.separator.ptr(), kind, &separator)) {
            return {Code::out_of_range};
        }
        place->offsets = buffer->offsets(index);
        place->start = buffer->starts(index);
    } else if (drawn.is_of(index) && i == drawn.ids_step) {
        place->total = size;
        place->values = buffer->reserve(size, kind);
        return {};
    } else if (size > filled) {
        place->offsets = buffer->offsets(index);
    }
    place->values = buffer->values(index, kind, i);
    return {};
}

Status draw_flat(const Columns& columns, const Drawn& drawn, const std::vector<Place>& places, const Buffer& buffer) {
    const Place &ids = places[drawn.ids_step], &labels = places[drawn.labels_step];
    const std::int64_t total = columns.at(drawn.index).total, size = ids.shape[1];
    auto* const out = buffer.at<std::int64_t>(ids.values);
    const Status status = columns.flatten(drawn.index, out, Kind::int64, total);
    if (!status) {
        return status;
    }
    std::int64_t fill = 0;
    if (size > total && !decode_number(ids.fill.ptr(), Kind::int64, &fill)) {
        return {Code::out_of_range};
    }
    std::fill(out + total, out + size, fill);
    return drawn.labels->write(columns, {drawn.index, columns.count(drawn.index), size, BatchIds::Form::flat, out,
                                         buffer.at<std::int64_t>(labels.values)});
}

py::tuple failure(std::size_t step, const Status& status) {
    return py::make_tuple(step, static_cast<int>(status.code), status.row, status.position);
}

}  // namespace

py::object defer_flat(const Columns& columns, const FlatPlan& plan, const Interop& interop,
                      const DeferredFactory& factory) {
    if (plan.multiple_of < 1) {
        throw py::value_error("multiple_of must be positive");
    }
    const std::vector<FlatStep> steps = parse_flat_steps(plan.steps);
    bool derived = false;
    Drawn drawn = find_drawn(steps, FlatAction::derive, plan.values, &derived);
    const auto ids = std::find_if(steps.begin(), steps.end(), [&](const FlatStep& step) {
        return step.action == FlatAction::join && step.index == drawn.index && step.kind == Kind::int64;
    });
    drawn.ids_step = static_cast<std::size_t>(ids - steps.begin());
    if (derived && ids == steps.end()) {
        return failure(drawn.labels_step, {Code::bad_argument});
    }
    Buffer buffer(columns);
    std::vector<Place> places(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const Status status = place_flat(columns, plan, steps, i, drawn, &buffer, &places[i]);
        if (!status) {
            return failure(i, status);
        }
    }
    buffer.allocate_on(interop);
    std::size_t failed = 0;
    Status status = buffer.write(&failed);
    if (status && drawn.labels != nullptr) {
        failed = drawn.labels_step;
        status = draw_flat(columns, drawn, places, buffer);
    }
    if (!status) {
        return failure(failed, status);
    }
    return factory.make(buffer.tensor, plan.steps, layout_of(places), columns.count(0),
                        py::make_tuple(plan.multiple_of, plan.separator, plan.start), factory.wrapped);
}

void register_defer(py::module_& m) {
    m.def(
        "defer",
        [](const Columns& columns, const py::tuple& steps, const py::dict& values, const Interop& interop,
           std::int64_t width, std::int64_t multiple_of, bool left, py::object factory) {
            py::object batch;
            std::size_t failed = 0;
            const Status status = defer(columns, steps, parse_steps(steps), values, interop, {width, multiple_of, left},
                                        {std::move(factory), false}, &batch, &failed);
            return status ? batch : py::object(failure(failed, status));
        },
        py::arg("columns"), py::arg("steps"), py::arg("values"), py::arg("interop"), py::arg("width"),
        py::arg("multiple_of"), py::arg("left"), py::arg("factory"));
    m.def(
        "defer_flat",
        [](const Columns& columns, py::tuple steps, py::dict values, const Interop& interop, std::int64_t multiple_of,
           py::object separator, std::int64_t start, py::object factory) {
            const FlatPlan plan{std::move(steps), std::move(values), multiple_of, std::move(separator), start};
            return defer_flat(columns, plan, interop, {std::move(factory), false});
        },
        py::arg("columns"), py::arg("steps"), py::arg("values"), py::arg("interop"), py::arg("multiple_of"),
        py::arg("separator"), py::arg("start"), py::arg("factory"));
}

}  // namespace quadrat
