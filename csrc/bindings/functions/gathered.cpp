// Arrays `[rows, width]` below one another, in memory that grows with them: what an evaluation gathers.
#include <pybind11/numpy.h>

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>
#include <string_view>

#include "../../kernels/bytes.hpp"
#include "../../kernels/padded_rows.hpp"
#include "../../memory/growing.hpp"
#include "../classes.hpp"

namespace quadrat {
namespace {

using memory::Growing;

// The product of a few sizes; throws where no memory is as large.
std::size_t product(std::int64_t rows, std::int64_t width, std::size_t token) {
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
    if (rows < 0 || width < 0) {
        throw std::invalid_argument("rows and widths must not be negative");
    }
    const auto count = static_cast<std::size_t>(rows);
    const auto tokens = static_cast<std::size_t>(width);
    if (count == 0 || tokens == 0 || token == 0) {
        return 0;
    }
    if (tokens > most / token || count > most / (tokens * token)) {
        throw std::bad_alloc();
    }
    return count * tokens * token;
}

void extend(Growing& memory, std::size_t bytes) {
    if (!memory.extend(bytes)) {
        throw std::bad_alloc();
    }
}

// Every function is told how many batches count. Those after them were left by an addition that came to no end: a
// function that writes overwrites them. Where one throws, the batches that count are as they were. A count of more than
// there are is an IndexError.
class Gathered {
public:
    // token: the bytes of what stands at one position of a row.
    explicit Gathered(std::size_t token) : token_(token) {}

    // Adds a batch. Throws std::bad_alloc.
    void append(std::size_t count, Address data, std::int64_t rows, std::int64_t width) {
        const Batch batch = next(count, rows, width);
        const std::size_t size = batch.end - bytes(count);
        copy_bytes(own(count, size), data, size);
        batches_.resize(count);
        batches_.push_back(batch);
    }

    // Adds a batch for each row, `widths[row]` tokens, that lie one after the other at `data`. Throws std::bad_alloc.
    void append_rows(std::size_t count, Address data, Address widths, std::int64_t rows) {
        const std::size_t kept = bytes(count);
        batches_.resize(count);
        try {
            for (const std::int64_t width : Span<const std::int64_t>{widths, rows}) {
                batches_.push_back(next(batches_.size(), 1, width));
            }
            const std::size_t size = bytes(batches_.size()) - kept;
            copy_bytes(own(count, size), data, size);
        } catch (...) {
            batches_.resize(count);
            throw;
        }
    }

    // Fills all rows out to the widest, with copies of the bytes of `fill`. Throws std::bad_alloc.
    void pad(std::size_t count, const py::bytes& bytes_of_fill) {
        const std::string_view fill = bytes_of_fill;
        const std::size_t kept = bytes(count);
        const std::int64_t widest = count == 0 ? 0 : batches_[count - 1].widest;
        std::int64_t rows = 0;
        for (std::size_t i = 0; i < count; ++i) {
            if (batches_[i].rows > std::numeric_limits<std::int64_t>::max() - rows) {
                throw std::bad_alloc();
            }
            rows += batches_[i].rows;
        }
        const std::size_t size = product(rows, widest, token_);
        if (size != kept) {
            const auto fresh = is_shared() ? std::make_shared<Growing>() : memory_;
            fresh->truncate(fresh == memory_ ? kept : 0);
            extend(*fresh, size - fresh->size());
            const std::vector<Block> all = blocks(count);
            Status status;
            {
                const py::gil_scoped_release release;  // a long copy between raw pointers
                status = concat_padded(span_of(all), widest, token_, fill.data(), fill.size(), fresh->data(), rows);
            }
            if (!status) {
                throw std::invalid_argument("the bytes of a token must be a multiple of those of the padding value");
            }
            memory_ = fresh;
        }
        batches_.resize(count);
        std::size_t end = 0;
        for (Batch& batch : batches_) {
            end += product(batch.rows, widest, token_);
            batch = {batch.rows, widest, widest, end};
        }
    }

    // The same batches in memory of their own. Throws std::bad_alloc.
    Gathered copy(std::size_t count) const { return retyped(count, memory_->data(), token_); }
    // Batches of the same rows and widths, whose tokens are at `data`. Throws std::bad_alloc.
    Gathered retyped(std::size_t count, Address data, std::size_t token) const {
        Gathered other(token);
        static_cast<void>(bytes(count));
        other.batches_.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            other.batches_.push_back(other.next(i, batches_[i].rows, batches_[i].width));
        }
        const std::size_t size = other.bytes(count);
        extend(*other.memory_, size);
        copy_bytes(other.memory_->data(), data, size);
        return other;
    }

    std::size_t size() const { return batches_.size(); }
    // Where each batch lies, until something is written.
    std::vector<Block> blocks(std::size_t count) const {
        std::vector<Block> all;
        static_cast<void>(bytes(count));
        std::size_t start = 0;
        for (std::size_t i = 0; i < count; ++i) {
            all.push_back({memory_->data() + start, batches_[i].rows, batches_[i].width});
            start = batches_[i].end;
        }
        return all;
    }

    std::size_t bytes(std::size_t count) const {
        if (count > size()) {
            throw py::index_error(message("there are ", size(), " batches, not ", count));
        }
        return count == 0 ? 0 : batches_[count - 1].end;
    }
    // The memory, of no more than these batches. It stays as it is while somebody else holds it: what is written then
    // goes to a copy.
    const std::shared_ptr<Growing>& share(std::size_t count) {
        if (!is_shared()) {
            memory_->truncate(bytes(count));
            memory_->fit();
        }
        return memory_;
    }

private:
    struct Batch {
        std::int64_t rows;
        std::int64_t width;
        std::int64_t widest;  // of this batch and those before
        std::size_t end;      // of its bytes
    };

    Batch next(std::size_t count, std::int64_t rows, std::int64_t width) const {
        const std::size_t size = product(rows, width, token_);
        if (size > std::numeric_limits<std::size_t>::max() - bytes(count)) {
            throw std::bad_alloc();
        }
        return {rows, width, count == 0 ? width : std::max(width, batches_[count - 1].widest), bytes(count) + size};
    }

    // Memory that nobody else holds, of the first `count` batches and `more` bytes that are to be written.
    char* own(std::size_t count, std::size_t more) {
        const std::size_t kept = bytes(count);
        if (is_shared()) {
            auto fresh = std::make_shared<Growing>();
            extend(*fresh, kept);
            copy_bytes(fresh->data(), memory_->data(), kept);
            memory_ = std::move(fresh);
        }
        memory_->truncate(kept);
        extend(*memory_, more);
        return memory_->data() + kept;
    }

    bool is_shared() const {
        const std::shared_ptr<Growing> held = memory_;  // its end comes after what the last other owner read
        return held.use_count() > 2;
    }

    std::size_t token_;
    std::vector<Batch> batches_;
    std::shared_ptr<Growing> memory_ = std::make_shared<Growing>();
};

// [count, 3]: address, rows and width of each.
py::array blocks(const Gathered& self, std::size_t count) {
    const std::vector<Block> all = self.blocks(count);
    py::array_t<std::int64_t> table({static_cast<py::ssize_t>(all.size()), py::ssize_t{3}});
    std::int64_t* cell = table.mutable_data();
    for (const Block& block : all) {
        *cell++ = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(block.data));
        *cell++ = block.rows;
        *cell++ = block.width;
    }
    return std::move(table);
}

// The numbers as an array of bytes, which shares the memory.
py::array values(Gathered& self, std::size_t count) {
    const auto size = static_cast<py::ssize_t>(self.bytes(count));
    auto owner = std::make_unique<std::shared_ptr<Growing>>(self.share(count));
    void* const data = (*owner)->data();
    const py::capsule base(owner.get(), [](void* held) { delete static_cast<std::shared_ptr<Growing>*>(held); });
    static_cast<void>(owner.release());
    return py::array(py::dtype::of<std::uint8_t>(), size, data, base);
}

}  // namespace

void register_gathered(py::module_& m) {
    bind_class<Gathered>(m, "Gathered")
        .def(py::init<std::size_t>(), "token"_a)
        .def("__len__", &Gathered::size)
        .def("append", &Gathered::append, "count"_a, "address"_a, "rows"_a, "width"_a)
        .def("append_rows", &Gathered::append_rows, "count"_a, "address"_a, "widths"_a, "rows"_a)
        .def("pad", &Gathered::pad, "count"_a, "fill"_a)
        .def("copy", &Gathered::copy, "count"_a)
        .def("retyped", &Gathered::retyped, "count"_a, "address"_a, "token"_a)
        .def("blocks", &blocks, "count"_a)
        .def("values", &values, "count"_a);
}

}  // namespace quadrat
