// The buffer of a deferred batch, while it is filled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../input/columns.hpp"
#include "../output/allocate.hpp"

namespace quadrat {

inline constexpr std::int64_t nowhere = -1;
// Bytes that are sent within the message to another process: passing on a file descriptor of shared memory takes
// longer.
inline constexpr std::int64_t most_in_message = 1 << 19;
inline constexpr std::int64_t alignment = 64;  // bytes: a cache line, and more than any vector load on a GPU

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

    // Where rows begin that take `least` places at least, and where the last one ends. Columns whose rows are equally
    // long share them.
    std::int64_t offsets(std::size_t index, std::int64_t least = 0) {
        const Column& column = columns_.at(index);
        least = column.min_length < least ? least : 0;
        for (const Offsets& known : offsets_) {
            if (known.least == least && columns_.at(known.index).lengths == column.lengths) {
                return known.at;
            }
        }
        offsets_.push_back({index, reserve(columns_.count(index) + 1, Kind::int64), least});
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
        for (const Offsets& piece : offsets_) {
            row_offsets(columns_.at(piece.index).all_lengths(), piece.least, at<std::int64_t>(piece.at));
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

    struct Offsets {
        std::size_t index;
        std::int64_t at, least;
    };
    struct Piece {
        std::size_t index;
        std::int64_t at;
        Kind kind;
        std::size_t step;  // the first that needs it
        bool numbers;
    };

    const Columns& columns_;
    std::vector<Offsets> offsets_;
    std::vector<Piece> values_;
    std::int64_t size_ = 0;
    char* data_ = nullptr;
};

}  // namespace quadrat
