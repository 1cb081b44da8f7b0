// Features to columns.
#include <algorithm>
#include <utility>

#include "columns.hpp"
#include "table.hpp"
#include "view.hpp"
#include "walk.hpp"

namespace quadrat {

Column::Column(std::int64_t rows_expected) {
    owners.reserve(static_cast<std::size_t>(rows_expected));
    rows.reserve(static_cast<std::size_t>(rows_expected));
    lengths.reserve(static_cast<std::size_t>(rows_expected));
}

void Column::add(py::object owner, const Row& row, std::uint32_t form) {
    min_length = rows.empty() ? row.length : std::min(min_length, row.length);
    max_length = std::max(max_length, row.length);
    first_form = rows.empty() ? form : first_form;
    forms |= form;
    kinds |= row.length > 0 && form != form_other ? 1U << static_cast<unsigned>(row.kind) : 0U;
    total += row.length;
    objects |= row.data == nullptr && row.length > 0;
    rows.push_back(row);
    lengths.push_back(row.length);
    owners.push_back(std::move(owner));
}

void Column::add_as_python(const Row& row, std::uint32_t form) {
    const std::uint32_t before = kinds;
    add(py::object(), row, form);
    const Kind kind = is_int(row.kind) ? Kind::int64 : is_float(row.kind) ? Kind::float64 : row.kind;
    kinds = before | (row.length > 0 ? 1U << static_cast<unsigned>(kind) : 0U);
}

namespace {

// The first `choices` rows of a list or tuple of rows; false when there are fewer.
bool add_choices(PyObject* value, Py_ssize_t choices, const Interop& interop, Column* column) {
    if (!PyList_CheckExact(value) && !PyTuple_CheckExact(value)) {
        return false;
    }
    for (Py_ssize_t i = 0; i < choices; ++i) {
        py::object row = item_of(value, i);
        if (!row) {
            return false;
        }
        add_value(std::move(row), interop, column);
    }
    return true;
}

bool is_dict_of_size(py::object feature, std::size_t size, const Interop& interop) {
    if (feature && interop.is_wrapper(feature.ptr())) {
        feature = feature.attr("data");
    }
    return feature && PyDict_CheckExact(feature.ptr()) && static_cast<std::size_t>(PyDict_Size(feature.ptr())) == size;
}

// The keys of the first feature, or null when it is no dict and so no keys were given.
py::object first_keys(const py::object& features, const Interop& interop) {
    py::object first = item_of(features.ptr(), 0);
    if (first && interop.is_wrapper(first.ptr())) {
        first = first.attr("data");
    }
    if (!first || !PyDict_CheckExact(first.ptr())) {
        return py::none();
    }
    return py::reinterpret_steal<py::object>(PyDict_Keys(first.ptr()));
}

}  // namespace

void add_value(py::object value, const Interop& interop, Column* column) {
    Row row;
    const std::uint32_t form = view(value.ptr(), interop, &row);
    column->add(std::move(value), row, form);
}

void Columns::add_values(const py::object& values, const Interop& interop) {
    if (!PyList_CheckExact(values.ptr()) && !PyTuple_CheckExact(values.ptr())) {
        throw py::type_error("rows must be a list or tuple");
    }
    const Py_ssize_t count = PySequence_Size(values.ptr());
    Column column(count);
    for (Py_ssize_t i = 0; i < count; ++i) {
        py::object object = item_of(values.ptr(), i);
        if (!object) {
            throw py::value_error("the list of rows changed while it was read");
        }
        add_value(std::move(object), interop, &column);
    }
    columns.push_back(std::move(column));
}

std::int64_t Columns::add_optional(const py::object& features, const py::object& name, const Interop& interop) {
    if (const TableRows* const rows = table_rows(features)) {
        return rows->collect_optional(name, interop, this);
    }
    const Py_ssize_t count = PySequence_Size(features.ptr());
    Column column(count);
    std::int64_t found = 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
        py::object feature = item_of(features.ptr(), i);
        if (feature && interop.is_wrapper(feature.ptr())) {
            feature = feature.attr("data");
        }
        const int has = feature ? PySequence_Contains(feature.ptr(), name.ptr()) : -1;
        py::object value = py::list();
        if (has == 1) {
            value = py::reinterpret_steal<py::object>(lookup(feature.ptr(), name.ptr()));
        }
        if (has < 0 || !value) {
            PyErr_Clear();
            return -1;
        }
        found += has;
        Row row;
        const std::uint32_t form = view(value.ptr(), interop, &row);
        column.add(std::move(value), row, form);
    }
    if (found > 0) {
        columns.push_back(std::move(column));
    }
    return found;
}

void Columns::add_ragged(std::uintptr_t values, Kind kind, std::int64_t values_size, std::uintptr_t offsets,
                         std::int64_t count, std::int64_t inner) {
    const auto* const bound = reinterpret_cast<const std::int64_t*>(offsets);
    const auto item = static_cast<std::int64_t>(item_size(kind));
    Column column(count);
    for (std::int64_t i = 0; i < count; ++i) {
        if (bound[i] < 0 || bound[i + 1] < bound[i] || bound[i + 1] > values_size) {
            throw py::value_error("offsets must rise from 0 and stay within the values: row " + std::to_string(i) +
                                  " runs from " + std::to_string(bound[i]) + " to " + std::to_string(bound[i + 1]) +
                                  " of " + std::to_string(values_size));
        }
        Row row;
        row.data = reinterpret_cast<const void*>(values + static_cast<std::uintptr_t>(bound[i] * inner * item));
        row.length = (bound[i + 1] - bound[i]) * inner;
        row.stride = item;
        row.kind = kind;
        column.add(py::object(), row, form_array);
    }
    columns.push_back(std::move(column));
}

bool collect_columns(const py::object& features, const py::object& names, const Interop& interop, py::tuple* keys,
                     Columns* columns) {
    if (!PyList_CheckExact(features.ptr()) && !PyTuple_CheckExact(features.ptr())) {
        const TableRows* const rows = table_rows(features);
        return rows != nullptr && rows->collect(names, interop, keys, columns);
    }
    const Py_ssize_t count = PySequence_Size(features.ptr());
    const py::object found = names.is_none() && count > 0 ? first_keys(features, interop) : names;
    if (found.is_none()) {
        return false;
    }
    *keys = py::tuple(found);
    const std::size_t width = keys->size();
    columns->columns.reserve(width);
    for (std::size_t c = 0; c < width; ++c) {
        columns->columns.emplace_back(count);
    }
    Walk walk(features, interop);
    std::vector<py::object> values;
    values.reserve(width * static_cast<std::size_t>(std::min(Walk::block, count)));
    for (Py_ssize_t first = 0; first < count; first += Walk::block) {
        const Py_ssize_t rows = std::min(Walk::block, count - first);
        if (!walk.gather(first, rows, *keys, &values)) {
            return false;
        }
        for (std::size_t at = 0; at < values.size(); ++at) {
            add_value(std::move(values[at]), interop, &columns->columns[at % width]);
        }
    }
    return true;
}

bool collect_nested(const py::object& features, const py::tuple& names, const py::object& plain, Py_ssize_t choices,
                    const Interop& interop, Columns* columns) {
    const TableRows* const table = table_rows(features);
    if ((table == nullptr && !PyList_CheckExact(features.ptr()) && !PyTuple_CheckExact(features.ptr())) ||
        choices < 1) {
        return false;
    }
    const Py_ssize_t count = PySequence_Size(features.ptr());
    for (Py_ssize_t i = 0; i < count && table == nullptr; ++i) {
        if (!is_dict_of_size(item_of(features.ptr(), i), names.size(), interop)) {
            return false;
        }
    }
    std::vector<bool> nested;
    for (const py::handle name : names) {
        nested.push_back(plain.is_none() || !name.equal(plain));
        columns->columns.emplace_back(nested.back() ? count * choices : count);
    }
    Walk walk(features, interop);
    std::vector<py::object> values;
    for (Py_ssize_t first = 0; first < count; first += Walk::block) {
        const Py_ssize_t rows = std::min(Walk::block, count - first);
        if (table != nullptr) {
            table->gather(first, rows, names, &values);
        } else if (!walk.gather(first, rows, names, &values)) {
            return false;
        }
        for (std::size_t at = 0; at < values.size(); ++at) {
            Column& column = columns->columns[at % names.size()];
            if (!nested[at % names.size()]) {
                add_value(std::move(values[at]), interop, &column);
            } else if (!add_choices(values[at].ptr(), choices, interop, &column)) {
                return false;
            }
        }
    }
    return true;
}

}  // namespace quadrat
