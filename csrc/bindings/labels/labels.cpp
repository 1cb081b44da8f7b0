#include "labels.hpp"

#include <algorithm>

#include "../../kernels/copy_rows.hpp"
#include "../../kernels/prefetch.hpp"
#include "../input/python_number.hpp"

namespace quadrat {
namespace {

// Offsets and word ids as tokenizers give them: lists of pairs, or of ints and None.
struct Items {
    PyObject* const* data;
    Py_ssize_t size;
};

bool items_of(PyObject* object, Items* out) {
    if (!PyList_CheckExact(object) && !PyTuple_Check(object)) {
        return false;
    }
    *out = {PySequence_Fast_ITEMS(object), PySequence_Fast_GET_SIZE(object)};
    return true;
}

Status read_array(PyObject* object, std::int64_t numbers_a_token, std::int64_t length, std::int64_t* out) {
    py::object source = py::reinterpret_borrow<py::object>(object);
    const auto as_array = py::reinterpret_steal<py::object>(PyObject_GetAttrString(object, "numpy"));
    clear_error();
    if (as_array) {
        source = as_array();
    }
    if (!py::isinstance<py::array>(source)) {
        return {Code::wrong_type};
    }
    const auto seen = py::reinterpret_borrow<py::array>(source);
    if (seen.dtype().kind() != 'i' || seen.ndim() != (numbers_a_token == 2 ? 2 : 1) ||
        (numbers_a_token == 2 && seen.shape(1) != 2)) {
        return {Code::wrong_type};
    }
    if (seen.shape(0) != length) {
        return {Code::wrong_length};
    }
    const py::array_t<std::int64_t, py::array::c_style | py::array::forcecast> numbers(seen);
    std::copy(numbers.data(), numbers.data() + numbers.size(), out);
    return {};
}

Status read_number(PyObject* item, std::int64_t* out) {
    return read_compact_int(item, out) ? Status{} : decode_numbers(&item, 1, Kind::int64, Kind::int64, out);
}

// A pair of ints, one token's offsets.
Status read_pair(PyObject* item, std::int64_t* out) {
    const py::scoped_critical_section lock{PyList_CheckExact(item) ? py::handle(item) : py::handle()};
    Items pair{};
    if (!items_of(item, &pair) || pair.size != 2) {
        return {Code::wrong_type};
    }
    const Status status = read_number(pair.data[0], out);
    return status ? read_number(pair.data[1], out + 1) : status;
}

// Pairs and their ints come cold from the heap, three misses a token: those ahead are asked for meanwhile.
void ask_ahead(const Items& items, std::int64_t at) {
    constexpr std::int64_t pairs = 24, ints = 12;
    if (at + pairs < items.size) {
        prefetch(items.data[at + pairs]);
    }
    Items pair{};
    const bool readable = at + ints < items.size && !(free_threaded && PyList_CheckExact(items.data[at + ints]));
    if (readable && items_of(items.data[at + ints], &pair) && pair.size == 2) {
        prefetch(pair.data[0]);
        prefetch(pair.data[1]);
    }
}

// One row of offsets or word ids as numbers: a list or tuple of pairs, or of ints and None (-1), or an array of
// integers. `out` has room for what `length` tokens need.
Status read_words(PyObject* row, WordFormat format, std::int64_t length, std::int64_t* out) {
    const py::object owner = as_it_is_now(py::reinterpret_borrow<py::object>(row));
    Items items{};
    if (!items_of(owner.ptr(), &items)) {
        return read_array(row, format == WordFormat::offsets ? 2 : 1, length, out);
    }
    if (items.size != length) {
        return {Code::wrong_length};
    }
    for (std::int64_t i = 0; i < length; ++i) {
        Status status;
        if (format == WordFormat::offsets) {
            ask_ahead(items, i);
            status = read_pair(items.data[i], out + 2 * i);
        } else if (items.data[i] == Py_None) {
            out[i] = -1;
        } else {
            status = read_number(items.data[i], out + i);
        }
        if (!status) {
            status.position = i;
            return status;
        }
    }
    return {};
}

// The words of a row, see read_words; numbers that no Python object holds are word ids.
Status read_row_of_words(const Column& column, std::size_t i, WordFormat format, std::int64_t length,
                         std::int64_t* out) {
    const Row& row = column.rows[i];
    if (column.owners[i]) {
        return read_words(column.owners[i].ptr(), format, length, out);
    }
    if (row.length != length) {
        return {Code::wrong_length};
    }
    constexpr std::int64_t first = 0;
    return format == WordFormat::offsets && length > 0 ? Status{Code::wrong_type}
                                                       : copy_rows({&row, 1}, {&first, 1}, Kind::int64, out, length);
}

// The numbers of a column that goes with the ids, a byte a token; `padding` where there is none.
Status flags_of(const Columns& columns, std::int64_t column, const BatchIds& batch, std::uint8_t padding,
                std::uint8_t* out) {
    const auto index = static_cast<std::size_t>(column);
    if (columns.at(index).inner != 1) {  // there is room for a number a token
        return {Code::wrong_type};
    }
    if (!batch.flat) {
        return columns.pad(index, out, Kind::uint8, batch.width, batch.side, py::int_(padding));
    }
    const std::int64_t filled = columns.at(batch.column).total;
    std::fill(out + filled, out + batch.count(), padding);
    return columns.flatten(index, out, Kind::uint8, filled);
}

// What a token is to masking without whole words: special, or a word of its own.
void words_of_special(std::int64_t count, std::uint8_t* special) {
    for (std::int64_t i = 0; i < count; ++i) {
        special[i] = special[i] != 0 ? word_none : word_begins;
    }
}

}  // namespace

std::vector<std::uint64_t> bit_set(const std::vector<std::int64_t>& ids) {
    std::vector<std::uint64_t> set;
    for (const std::int64_t id : ids) {
        if (id < 0 || id >= most_tokens) {
            throw py::value_error(message("special_ids must be between 0 and 2**28 - 1, not ", id));
        }
        const auto at = static_cast<std::size_t>(id / 64);
        set.resize(std::max(set.size(), at + 1));
        set[at] |= std::uint64_t{1} << (id % 64);
    }
    return set;
}

std::vector<std::int64_t> BatchIds::starts() const {
    std::vector<std::int64_t> start(static_cast<std::size_t>(rows) + 1);
    if (flat) {
        row_offsets({lengths, rows}, 0, start.data());
        return start;
    }
    for (std::int64_t i = 0; i < rows; ++i) {
        start[static_cast<std::size_t>(i)] = padded_start(i, lengths[i], width, side);
    }
    return start;
}

Status CausalLabels::write(const Columns& columns, const BatchIds& batch) const {
    causal_labels(batch.ids, batch.count(), pad_id, batch.labels);
    return check_special(columns);
}

Status KeptLabels::write(const Columns& columns, const BatchIds& batch) const {
    const std::vector<Row>& masks = columns.at(static_cast<std::size_t>(mask_)).rows;
    for (std::int64_t i = 0; i < batch.rows; ++i) {
        if (masks.at(static_cast<std::size_t>(i)).length != batch.lengths[i]) {
            return {Code::wrong_length, i};
        }
    }
    const auto kept = scratch<std::uint8_t>(batch.count());
    const Status status = flags_of(columns, mask_, batch, 0, kept.get());
    for (std::int64_t i = 0; i < batch.count() && status; ++i) {
        batch.labels[i] = kept[static_cast<std::size_t>(i)] != 0 ? batch.ids[i] : ignore_index;
    }
    return status;
}

Status CausalLabels::check_special(const Columns& columns) const {
    if (special_ < 0) {
        return {};
    }
    const auto index = static_cast<std::size_t>(special_);
    const std::int64_t count = columns.at(index).total;
    return columns.flatten(index, scratch<std::uint8_t>(count).get(), Kind::uint8, count);
}

MaskingLabels::MaskingLabels(const std::vector<std::int64_t>& special_ids, std::int64_t special, std::int64_t words,
                             int word_format)
    : special_set_(bit_set(special_ids)),
      special_(special),
      words_(words),
      word_format_(static_cast<WordFormat>(word_format)) {}

Status MaskingLabels::mark_special(const Columns& columns, const BatchIds& batch, std::uint8_t* special) const {
    if (special_ >= 0) {
        return flags_of(columns, special_, batch, 1, special);
    }
    const std::int64_t filled = batch.flat ? columns.at(batch.column).total : batch.count();
    special_tokens(batch.ids, filled, span_of(special_set_), special);
    std::fill(special + filled, special + batch.count(), std::uint8_t{1});
    return {};
}

Status MaskingLabels::words_of_rows(const Columns& columns, std::int64_t count, std::uint8_t* words) const {
    const Status status = columns.flatten(static_cast<std::size_t>(special_), words, Kind::uint8, count);
    if (status) {
        words_of_special(count, words);
    }
    return status;
}

Status MaskingLabels::write(const Columns& columns, const BatchIds& batch) const {
    const std::int64_t count = batch.count();
    const auto special = scratch<std::uint8_t>(count);
    Status status = mark_special(columns, batch, special.get());
    if (!status) {
        return status;
    }
    if (word_format_ == WordFormat::none) {
        words_of_special(count, special.get());
        return mask(columns, special.get(), nullptr, batch);
    }
    const auto words = scratch<std::uint8_t>(count);
    std::fill_n(words.get(), count, word_none);
    const auto numbers = scratch<std::int64_t>(2 * batch.width);
    const Column& rows = columns.at(static_cast<std::size_t>(words_));
    const bool offsets = word_format_ == WordFormat::offsets;
    const std::vector<std::int64_t>& lengths = columns.at(batch.column).lengths;
    const std::vector<std::int64_t> start = batch.starts();
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        const std::int64_t length = lengths[i], row_start = start[i];
        status = read_row_of_words(rows, i, word_format_, length, numbers.get());
        if (!status) {
            status.row = static_cast<std::int64_t>(i);
            return status;
        }
        std::uint8_t* const row_words = words.get() + row_start;
        word_starts(numbers.get(), offsets, special.get() + row_start, length, row_words);
        // What continues no word of its own row must not continue the last word of the row before.
        for (std::int64_t at = 0; at < length && row_words[at] != word_begins; ++at) {
            row_words[at] = word_none;
        }
    }
    return mask(columns, words.get(), nullptr, batch);
}

Status MaskingLabels::write(const std::uint8_t* special, const std::int64_t* offsets, const std::uint64_t* keys,
                            BatchIds batch) const {
    const std::int64_t count = batch.count();
    const std::vector<std::int64_t> full(batch.lengths == nullptr ? static_cast<std::size_t>(batch.rows) : 0,
                                         batch.width);
    batch.lengths = batch.lengths == nullptr ? full.data() : batch.lengths;
    std::int64_t left = batch.width;                 // of a flat batch
    for (std::int64_t i = 0; i < batch.rows; ++i) {  // before anything is read or written
        if (batch.lengths[i] < 0 || batch.lengths[i] > (batch.flat ? left : batch.width)) {
            return {Code::row_too_long, i};
        }
        left -= batch.lengths[i];
    }
    const auto words = scratch<std::uint8_t>(count), derived = scratch<std::uint8_t>(special == nullptr ? count : 0);
    if (special == nullptr) {
        special_tokens(batch.ids, count, span_of(special_set_), derived.get());
        special = derived.get();
    }
    if (offsets == nullptr) {
        std::copy_n(special, count, words.get());
        words_of_special(count, words.get());
    } else {
        const std::vector<std::int64_t> start = batch.starts();
        for (std::size_t i = 0; i + 1 < start.size(); ++i) {
            word_starts(offsets + 2 * start[i], true, special + start[i], batch.lengths[i], words.get() + start[i]);
        }
    }
    return mask({}, words.get(), keys, batch);
}

}  // namespace quadrat
