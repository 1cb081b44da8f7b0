// The buffer of a deferred batch, while it is filled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "decode.hpp"
#include "defer.hpp"
#include "labels.hpp"

namespace quadrat {

inline constexpr std::int64_t nowhere = -1;
// Bytes that are sent within the message to another process: passing on a file descriptor of shared memory takes
// longer.
inline constexpr std::int64_t most_in_message = 1 << 19;
inline constexpr std::int64_t alignment = 64;  // bytes: a cache line, and more than any vector load on a GPU

inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
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
        Allocation made = size_ <= most_in_message ? allocate(interop, Framework::torch, {size_}, Kind::uint8)
                                                   : allocate_to_send(interop);
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
    Allocation allocate_to_send(const Interop& interop) const {
        BatchMemory memory(interop, Framework::torch);
        if (memory.shares()) {
            memory.expect({{size_}, Kind::uint8});
        }
        return memory.take({{size_}, Kind::uint8});
    }

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

inline py::tuple layout_of(const std::vector<Place>& places) {
    py::tuple layout(places.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
        layout[i] = places[i].as_tuple();
    }
    return layout;
}

// What fills the gaps of an output; a status where it is not a number that the output holds.
inline Status find_fill(const py::dict& values, const py::object& name, Kind kind, Place* place) {
    PyObject* const value = PyDict_GetItemWithError(values.ptr(), name.ptr());
    std::uint64_t element = 0;
    if (!decode_number(value, kind, &element)) {
        return {Code::out_of_range};
    }
    place->fill = py::reinterpret_borrow<py::object>(value);
    return {};
}

// What a step that fails is reported as.
inline py::tuple failure(std::size_t step, const Status& status) {
    return py::make_tuple(step, static_cast<int>(status.code), status.row, status.position);
}

// The ids of a batch as numbers at hand, and the labels that are drawn for them: draws from a generator are the host's
// business.
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

}  // namespace quadrat
