// Columns to memory: which kernel writes a column, and its error.
#include "columns.hpp"

#include <pybind11/critical_section.h>

#include <algorithm>
#include <limits>

#include "../../kernels/bytes.hpp"
#include "../../kernels/convert.hpp"
#include "../../kernels/copy_rows.hpp"
#include "../../kernels/padded_rows.hpp"
#include "../../kernels/prefetch.hpp"
#include "python_number.hpp"

namespace quadrat {
namespace {

constexpr std::int64_t worth_releasing = 1 << 16;  // tokens: below this, giving up the GIL costs more than the copy

// copy_rows for Python lists and tuples; the GIL is held, and on builds without one the list's own lock.
Status decode_row(PyObject* owner, const Row& row, Kind kind, void* out, bool stream) {
    const py::scoped_critical_section lock{PyList_CheckExact(owner) ? py::handle(owner) : py::handle()};
    return PySequence_Fast_GET_SIZE(owner) == row.length
               ? decode_numbers(PySequence_Fast_ITEMS(owner), row.length, row.kind, kind, out, stream)
               : Status{Code::changed};
}

// The same for lists of lists: `extents` are their lengths, level by level, and `inner` the numbers in one item.
Status decode_nested(PyObject* owner, const Row& row, Span<const std::int64_t> extents, std::int64_t inner, Kind kind,
                     char* out) {
    if (!is_sequence(owner) || PySequence_Size(owner) != row.length) {
        return {Code::uneven};
    }
    if (extents.size == 0) {
        return decode_row(owner, row, kind, out, false);
    }
    const Span<const std::int64_t> below{extents.data + 1, extents.size - 1};
    for (std::int64_t i = 0; i < row.length; ++i) {
        const py::object item = item_of(owner, i);
        const std::int64_t first = i * inner * static_cast<std::int64_t>(item_size(kind));
        Status status = item ? decode_nested(item.ptr(), {nullptr, extents[0], 0, row.kind}, below, inner / extents[0],
                                             kind, out + first)
                             : Status{Code::changed};
        if (!status) {
            status.position = i;
            return status;
        }
    }
    return {};
}

// The items of a list; null for what is none.
const void* items_of(PyObject* owner) {
    const bool list = owner != nullptr && PyList_CheckExact(owner);
    return list ? peek(&reinterpret_cast<const PyListObject*>(owner)->ob_item) : nullptr;
}

// One pass over a column whose rows may be Python objects; rows in memory go to copy_rows one by one.
Status copy_python_rows(const Column& column, Span<const std::int64_t> start, Kind kind, void* out,
                        std::int64_t out_size) {
    const Copier copy(bytes_of(out_size, item_size(kind)));
    const bool nested = !column.trailing.empty();
    for (std::int64_t i = 0; i < start.size; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const Row& row = column.rows[at];
        if (row.length == 0) {
            continue;
        }
        if (i + 1 < start.size && start[i + 1] >= 0 && start[i + 1] < out_size) {
            const char* const next =
                static_cast<const char*>(out) + static_cast<std::size_t>(start[i + 1]) * item_size(kind);
            const std::int64_t length = column.rows[at + 1].length, items = nested ? column.lengths[at + 1] : length;
            prefetch_copy(items_of(column.owners[at + 1].ptr()), items * static_cast<std::int64_t>(sizeof(PyObject*)),
                          copy.streams() ? nullptr : next, length * static_cast<std::int64_t>(item_size(kind)));
        }
        Status status;
        if (row.data != nullptr) {
            status = copy_rows({&row, 1}, {&start[i], 1}, kind, out, out_size);
        } else if (start[i] < 0 || row.length > out_size - start[i]) {
            status = {Code::row_too_long};
        } else {
            char* const target = static_cast<char*>(out) + static_cast<std::size_t>(start[i]) * item_size(kind);
            status = nested ? column.decode(at, column.shape(at), kind, target)
                            : decode_row(column.owners[at].ptr(), row, kind, target, copy.streams());
        }
        if (!status) {
            status.row = i;
            return status;
        }
    }
    return {};
}

Status write_number(PyObject* owner, const Row& row, Kind kind, void* out) {
    if (row.data == nullptr) {
        return decode_numbers(&owner, 1, row.kind, kind, out);
    }
    if (kind == Kind::float32 && (row.kind == Kind::int64 || row.kind == Kind::uint64)) {
        // Whether by way of float64 or not, the same comes out: of those that float64 holds.
        constexpr std::int64_t most = std::int64_t{1} << 53;
        const std::int64_t value = *static_cast<const std::int64_t*>(row.data);
        if (value < -most || value > most) {
            return {Code::out_of_range};
        }
    }
    constexpr std::int64_t first = 0;
    return copy_rows({&row, 1}, {&first, 1}, kind, out, 1);
}

// Where rows of these lengths begin in a padded output, in elements: start[lengths.size()].
Status place_padded(const std::vector<std::int64_t>& lengths, std::int64_t width, std::int64_t inner, Side side,
                    std::int64_t* start) {
    const auto count = static_cast<std::int64_t>(lengths.size());
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 16;
    if (width < 0 || (count > 0 && width > most / count / std::max<std::int64_t>(inner, 1))) {
        return {Code::bad_argument};
    }
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t length = lengths[static_cast<std::size_t>(i)];
        if (length > width) {
            return {Code::row_too_long, i};
        }
        start[i] = padded_start(i, length, width, side) * inner;
    }
    return {};
}

// A row whose elements lie side by side, as runs that do so in the output too, whose axes have these steps.
void add_runs(const Row& row, const Trailing& shape, const Trailing& steps, std::int64_t start, std::vector<Row>* runs,
              std::vector<std::int64_t>* places) {
    std::int64_t run = 1;
    std::size_t outer = shape.size();
    for (; outer > 0 && (shape[outer - 1] == 1 || steps[outer - 1] == run); --outer) {
        run *= shape[outer - 1];
    }
    Trailing at(outer, 0);
    for (std::int64_t done = 0; done < row.length; done += run) {
        runs->push_back({static_cast<const char*>(row.data) + done * row.stride, run, row.stride, row.kind});
        places->push_back(start);
        for (std::size_t axis = outer; axis-- > 0;) {
            start += steps[axis];
            if (++at[axis] < shape[axis]) {
                break;
            }
            start -= at[axis] * steps[axis];
            at[axis] = 0;
        }
    }
}

bool only(const Column& column, std::uint32_t forms) { return (column.forms & ~forms) == 0; }

constexpr std::uint32_t row_forms = form_list | form_tuple | form_array | form_tensor | form_deep | form_derived;

}  // namespace

std::vector<std::int64_t> Column::offsets(std::int64_t least) const {
    std::vector<std::int64_t> result(lengths.size() + 1);
    row_offsets(all_lengths(), least, result.data());
    return result;
}

Trailing Column::shape(std::size_t row) const {
    if (!shapes.empty()) {
        return shapes.at(row);
    }
    Trailing result{lengths.at(row)};
    result.insert(result.end(), trailing.begin(), trailing.end());
    return result;
}

Status Column::decode(std::size_t row, const Trailing& shape, Kind kind, char* out) const {
    const std::int64_t elements = elements_of({shape.begin() + 1, shape.end()});
    return decode_nested(owners[row].ptr(), {nullptr, shape[0], 0, rows[row].kind},
                         {shape.data() + 1, static_cast<std::int64_t>(shape.size()) - 1}, elements, kind, out);
}

Status Columns::copy(const Column& column, Span<const std::int64_t> start, Kind kind, Address out,
                     std::int64_t out_size) const {
    std::optional<NoUserCode> meanwhile;
    if (const Status status = see_again(column, &meanwhile); !status) {
        return status;
    }
    if (column.objects) {
        return copy_python_rows(column, start, kind, out, out_size);
    }
    const Span<const Row> rows = span_of(column.rows);
    if (column.total * column.inner < worth_releasing) {
        return copy_rows(rows, start, kind, out, out_size);
    }
    meanwhile.reset();
    invalidate();
    const py::gil_scoped_release release;  // a long copy between raw pointers
    return copy_rows(rows, start, kind, out, out_size);
}

std::int64_t Columns::first_difference(std::size_t a, std::size_t b) const {
    const std::vector<std::int64_t>&lengths = at(a).lengths, &others = at(b).lengths;
    const auto [first, second] = std::mismatch(lengths.begin(), lengths.end(), others.begin(), others.end());
    return first == lengths.end() || second == others.end() ? -1 : first - lengths.begin();
}

Status Columns::pad(std::size_t index, Address out, Kind kind, std::int64_t width, Side side,
                    const py::handle& value) const {
    const Column& column = at(index);
    if (!only(column, row_forms)) {
        return {Code::wrong_type};
    }
    std::vector<std::int64_t> start(column.lengths.size());
    Status status = place_padded(column.lengths, width, column.inner, side, start.data());
    std::uint64_t fill = 0;
    const bool gaps = column.min_length < width;
    if (status && gaps && !decode_number(value.ptr(), kind, &fill)) {
        return {Code::out_of_range};
    }
    status = status ? copy(column, span_of(start), kind, out, count(index) * width * column.inner) : status;
    return status && gaps ? fill_gaps(column.all_lengths(), width, column.inner, side, kind, &fill, out) : status;
}

Status Columns::flatten(std::size_t index, Address out, Kind kind, std::int64_t out_size) const {
    const std::vector<std::int64_t> offsets = at(index).offsets();
    return place(index, {offsets.data(), count(index)}, out, kind, out_size);
}

Status Columns::place(std::size_t index, Span<const std::int64_t> start, Address out, Kind kind,
                      std::int64_t out_size) const {
    const Column& column = at(index);
    if (!only(column, row_forms)) {
        return {Code::wrong_type};
    }
    if (column.inner == 1) {
        return copy(column, start, kind, out, out_size);
    }
    std::vector<std::int64_t> elements(start.begin(), start.end());
    for (std::int64_t& first : elements) {
        first *= column.inner;
    }
    return copy(column, {elements.data(), start.size}, kind, out, out_size * column.inner);
}

Status Columns::numbers(std::size_t index, Address out, Kind kind) const {
    const Column& column = at(index);
    if (!only(column, form_number | form_scalar | form_tensor_number)) {
        return {Code::wrong_type};
    }
    std::optional<NoUserCode> meanwhile;
    if (const Status status = see_again(column, &meanwhile); !status) {
        return status;
    }
    for (std::size_t i = 0; i < column.rows.size(); ++i) {
        char* const target = static_cast<char*>(out) + i * item_size(kind);
        Status status = write_number(column.owners[i].ptr(), column.rows[i], kind, target);
        if (!status) {
            status.row = static_cast<std::int64_t>(i);
            return status;
        }
    }
    return {};
}

Status Columns::place_blocks(std::size_t index, Span<const std::int64_t> start, const Trailing& steps, Address out,
                             Kind kind, std::int64_t out_size) const {
    const Column& column = at(index);
    std::optional<NoUserCode> meanwhile;
    if (const Status status = see_again(column, &meanwhile); !status) {
        return status;
    }
    Column runs(0);
    std::vector<std::int64_t> places, ends;
    for (std::size_t i = 0; i < column.rows.size(); ++i) {
        const Trailing shape = column.shape(i);
        Row row = column.rows[i];
        if (row.data == nullptr && row.length > 0) {
            const auto item = static_cast<std::int64_t>(item_size(kind));
            runs.kept.push_back(std::make_unique<char[]>(static_cast<std::size_t>(row.length * item)));
            Status status = column.decode(i, shape, kind, runs.kept.back().get());
            if (!status) {
                status.row = static_cast<std::int64_t>(i);
                return status;
            }
            row = {runs.kept.back().get(), row.length, item, kind};
        }
        add_runs(row, shape, steps, start[static_cast<std::int64_t>(i)], &runs.rows, &places);
        ends.push_back(static_cast<std::int64_t>(places.size()));
    }
    std::optional<py::gil_scoped_release> release;
    if (out_size >= worth_releasing) {
        meanwhile.reset();
        invalidate();
        release.emplace();
    }
    Status status = copy_rows(span_of(runs.rows), span_of(places), kind, out, out_size);
    status.row = std::upper_bound(ends.begin(), ends.end(), status.row) - ends.begin();
    return status;
}

Status Columns::attention_mask(std::size_t index, Address out, Kind kind, std::int64_t width, Side side) const {
    return quadrat::attention_mask(at(index).all_lengths(), width, side, kind, out);
}

}  // namespace quadrat
