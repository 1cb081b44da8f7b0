// Features to columns that hold their values.
#include <algorithm>

#include "../../kernels/copy_rows.hpp"
#include "table.hpp"
#include "walk.hpp"

namespace quadrat {

Column::Column(std::int64_t rows_expected) {
    owners.reserve(static_cast<std::size_t>(rows_expected));
    rows.reserve(static_cast<std::size_t>(rows_expected));
    lengths.reserve(static_cast<std::size_t>(rows_expected));
}

void Column::add(const Row& row, std::uint32_t form, const Trailing& dimensions) {
    owners.emplace_back();
    see_deep(row, form, dimensions);
}

void Column::add_as(const Row& row, std::uint32_t form, Kind kind, const Trailing& dimensions) {
    const std::uint32_t before = kinds;
    add(row, form, dimensions);
    Row& added = rows.back();
    kinds = before | (added.length > 0 ? 1U << static_cast<unsigned>(kind) : 0U);
    if (row.kind == Kind::float64 && kind == Kind::float32) {
        keep(kind, &added);
    }
}

void Column::keep(Kind kind, Row* row) {
    constexpr std::int64_t first = 0;
    const auto item = static_cast<std::int64_t>(item_size(kind));
    auto numbers = std::make_unique<char[]>(static_cast<std::size_t>(row->length * item));
    if (copy_rows({row, 1}, {&first, 1}, kind, numbers.get(), row->length)) {
        *row = {numbers.get(), row->length, item, kind};
        kept.push_back(std::move(numbers));
    }
}

namespace {

// The names of the columns of a table, or the keys of the first feature; None when that is not a plain dict.
py::object names_of(const py::object& features, const TableRows* table, const Interop& interop) {
    if (table != nullptr) {
        return table->table().names();
    }
    const py::object first = PlainDicts(interop).dict_of(item_of(features.ptr(), 0));
    if (!first) {
        return py::none();
    }
    // A subclass may have an order of its own, as OrderedDict has.
    return PyDict_CheckExact(first.ptr()) ? py::reinterpret_steal<py::object>(PyDict_Keys(first.ptr()))
                                          : first.attr("keys")();
}

// Columns of the first `choices` rows of each feature, feature by feature; the column `plain` as it is. false when a
// feature has other names too, or a value has not that many rows.
bool collect_nested(const py::object& features, const py::tuple& names, const py::object& plain, Py_ssize_t choices,
                    const Interop& interop, Columns* columns) {
    const TableRows* const table = table_rows(features);
    if (table == nullptr && !is_sequence(features)) {  // rows were handed out meanwhile
        return false;
    }
    const Py_ssize_t count = PySequence_Size(features.ptr());
    PlainDicts dicts(interop);
    for (Py_ssize_t i = 0; i < count && table == nullptr; ++i) {
        const py::object feature = dicts.dict_of(item_of(features.ptr(), i));
        if (!feature || static_cast<std::size_t>(PyDict_Size(feature.ptr())) != names.size()) {
            return false;
        }
    }
    std::vector<bool> nested;
    for (const py::handle name : names) {
        nested.push_back(!name.equal(plain));
        columns->columns.emplace_back(nested.back() ? count * choices : count);
    }
    std::vector<std::size_t> places;  // of the columns whose values are still to be held
    py::list held;
    for (std::size_t c = 0; c < names.size(); ++c) {
        if (table == nullptr || !nested[c] || !table->collect_choices(names[c], choices, &columns->columns[c])) {
            places.push_back(c);
            held.append(names[c]);
        }
    }
    const auto hold = [&](std::size_t at, py::object value) {
        Column& column = columns->columns[places[at]];
        if (!nested[places[at]]) {
            column.hold(std::move(value));
            return true;
        }
        bool all = is_sequence(value);
        for (Py_ssize_t i = 0; all && i < choices; ++i) {
            py::object row = item_of(value.ptr(), i);
            all = static_cast<bool>(row);
            column.hold(std::move(row));
        }
        return all;
    };
    return table != nullptr ? table->gather(py::tuple(held), hold) : Walk(features, interop).gather(names, hold);
}

}  // namespace

bool Columns::hold_values(const py::object& values) {
    if (!is_sequence(values)) {
        return false;
    }
    const Py_ssize_t count = PySequence_Size(values.ptr());
    Column& column = columns.emplace_back(count);
    for (Py_ssize_t i = 0; i < count; ++i) {
        py::object row = item_of(values.ptr(), i);
        if (!row) {
            throw py::value_error("the list of rows changed while it was read");
        }
        prefetch(row.ptr());
        column.hold(std::move(row));
    }
    return true;
}

void Columns::add_values(const py::object& values, const py::object& interop) {
    keep_alive(interop);
    Columns single;
    if (!single.hold_values(values)) {
        throw py::type_error("rows must be a list or tuple");
    }
    interop_ = &interop.cast<const Interop&>();
    single.look(*interop_);
    invalidate();
    columns.push_back(std::move(single.columns.front()));
}

std::int64_t Columns::add_optional(const py::object& features, const py::handle& name, const Interop& interop,
                                   bool skips) {
    Columns single;
    std::int64_t present = 0;
    if (const TableRows* const rows = table_rows(features)) {
        present = rows->collect(name, &single, skips) ? single.columns.front().held() : 0;
    } else {
        const Py_ssize_t count = PySequence_Size(features.ptr());
        Column& column = single.columns.emplace_back(count);
        PlainDicts dicts(interop);
        for (Py_ssize_t i = 0; i < count; ++i) {
            const py::object feature = dicts.dict_of(item_of(features.ptr(), i));
            if (!feature) {
                return -1;
            }
            bool failed = false;
            py::object value = Walk::lookup(feature, name.ptr(), &failed);
            if (failed) {
                return -1;
            }
            const bool has = value && !(skips && value.is_none());
            present += has ? 1 : 0;
            if (has || !skips) {
                column.hold(has ? std::move(value) : py::list());
            }
        }
    }
    if (present > 0) {
        columns.push_back(std::move(single.columns.front()));
    }
    return present;
}

void Columns::add_ragged(Address values, Kind kind, std::int64_t values_size, Address offsets, std::int64_t count,
                         const Trailing& trailing) {
    const std::int64_t* const bound = offsets;
    const char* const first = values;
    const std::int64_t inner = elements_of(trailing);
    if (inner < 0) {
        throw py::value_error("no memory holds tokens of such a shape");
    }
    const auto item = static_cast<std::int64_t>(item_size(kind));
    LongestRow longest;
    if (const Status status = check_offsets({bound, count + 1}, values_size, &longest); !status) {
        throw py::value_error(message("offsets must start at 0, must not decrease and must not exceed ", values_size,
                                      ", the number of values: row ", status.row, " breaks this"));
    }
    Column column(count);
    column.trailing = trailing;  // also of no rows
    column.inner = inner;
    for (std::int64_t i = 0; i < count; ++i) {
        column.add({first + bound[i] * inner * item, bound[i + 1] - bound[i], item, kind},
                   form_array | (trailing.empty() ? 0U : form_deep), trailing);
    }
    columns.push_back(std::move(column));
}

void Columns::cut(std::size_t index, Address starts_at, Address lengths_at) {
    const std::int64_t *const starts = starts_at, *const lengths = lengths_at;
    const Column& whole = at(index);
    const auto count = static_cast<std::int64_t>(whole.rows.size());
    if (whole.objects || whole.movable) {
        throw py::value_error("only rows that lie in memory can be cut, one start and one length for each");
    }
    Column part(count);
    for (std::int64_t i = 0; i < count; ++i) {
        Row row = whole.rows[static_cast<std::size_t>(i)];
        const std::int64_t tokens = whole.lengths[static_cast<std::size_t>(i)];
        if (starts[i] < 0 || lengths[i] < 0 || starts[i] > tokens || lengths[i] > tokens - starts[i]) {
            throw py::value_error(
                message("row ", i, " has ", tokens, " tokens, not ", lengths[i], " from number ", starts[i], " on"));
        }
        row.data = static_cast<const char*>(row.data) + starts[i] * whole.inner * row.stride;
        row.length = lengths[i];
        part.add(row, whole.first_form, whole.trailing);
    }
    part.forms = whole.forms;
    part.kinds = whole.kinds;
    part.kept = std::move(columns[index].kept);  // some rows point into it
    columns[index] = std::move(part);
}

bool collect_columns(const py::object& features, const py::object& names, const Interop& interop, py::tuple* keys,
                     Columns* columns, const py::dict& without) {
    const TableRows* const rows = is_sequence(features) ? nullptr : table_rows(features);
    if (rows == nullptr && !is_sequence(features)) {
        return false;
    }
    const py::object wanted = names.is_none() ? names_of(features, rows, interop) : names;
    if (wanted.is_none()) {
        return false;
    }
    *keys = py::tuple(wanted);
    if (names.is_none() && !without.empty()) {
        py::list others;
        for (const py::handle name : *keys) {
            const auto same = [&](const auto& other) { return is_same_name(name, other.first); };
            if (std::none_of(without.begin(), without.end(), same)) {
                others.append(name);
            }
        }
        *keys = py::tuple(others);
    }
    if (rows != nullptr) {
        return std::all_of(keys->begin(), keys->end(),
                           [&](const py::handle& name) { return rows->collect(name, columns); });
    }
    columns->columns.reserve(keys->size());
    for (std::size_t c = 0; c < keys->size(); ++c) {
        columns->columns.emplace_back(PySequence_Size(features.ptr()));
    }
    const auto hold = [&](std::size_t c, py::object value) {
        columns->columns[c].hold(std::move(value));
        return true;
    };
    return Walk(features, interop).gather(*keys, hold);
}

std::int64_t collect_choices(const py::object& features, const py::object& plain, const py::object& main,
                             const Interop& interop, py::tuple* keys, Columns* columns) {
    const TableRows* const table = table_rows(features);
    if (table != nullptr ? table->size() == 0 || !table->has(main) : !is_sequence(features)) {
        return 0;
    }
    const py::object names = names_of(features, table, interop);
    if (names.is_none()) {
        return 0;
    }
    *keys = py::tuple(names);
    py::object first;
    if (table != nullptr) {
        first = table->value(main, 0);
    } else if (const py::object dict = PlainDicts(interop).dict_of(item_of(features.ptr(), 0))) {
        first = Walk::lookup(dict, main.ptr());
    }
    const Py_ssize_t choices = first && is_sequence(first) ? PySequence_Size(first.ptr()) : 0;
    return choices > 0 && collect_nested(features, *keys, plain, choices, interop, columns) ? choices : 0;
}

}  // namespace quadrat
