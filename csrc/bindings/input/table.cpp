#include "table.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <numeric>

#include "../classes.hpp"

namespace quadrat {
namespace {

std::string text(const py::handle& object) { return py::str(object).cast<std::string>(); }

std::int64_t length_of(const py::object& values) {
    if (!PyList_CheckExact(values.ptr()) && !PyTuple_CheckExact(values.ptr())) {
        throw py::type_error("a column is a FlatColumn, a list or a tuple");
    }
    return PySequence_Size(values.ptr());
}

// What `read` gives; where the memory of a column contradicts itself, the error says where.
template <typename Read>
auto read_value(const py::handle& name, std::int64_t row, Read read) {
    try {
        return read();
    } catch (const py::value_error& error) {
        throw py::value_error(message("column '", text(name), "', row ", row, " of the table: ", error.what()));
    }
}

[[noreturn]] void refuse_key(const std::string& key, std::int64_t size) {
    throw py::index_error(message("row ", key, " is out of range: there are ", size, " rows"));
}

std::int64_t in_range(std::int64_t key, std::int64_t size) {
    const std::int64_t row = key < 0 ? key + size : key;
    if (row < 0 || row >= size) {
        refuse_key(std::to_string(key), size);
    }
    return row;
}

// What Python makes of numbers of a kind.
Kind kind_in_python(Kind kind) { return is_int(kind) ? Kind::int64 : is_float(kind) ? Kind::float64 : kind; }

bool is_told(const Trailing& trailing) { return std::find(trailing.begin(), trailing.end(), -1) == trailing.end(); }

// The dimensions that the first row has of those that are not empty; none where all are.
Trailing told_by_any(const FlatColumn& flat, const std::vector<FlatColumn::Element>& elements) {
    Trailing trailing;
    Row row;
    const auto tells = [&](const FlatColumn::Element& element) {
        return flat.row(element, &row, &trailing) && !trailing.empty() && is_told(trailing);
    };
    return std::any_of(elements.begin(), elements.end(), tells) ? trailing : Trailing();
}

std::int64_t looked_up(const FlatColumn& mapping, std::int64_t key) {
    const auto [array, at] = mapping.element(key);
    const Kind kind = mapping.type().kind;
    if (mapping.is_numbers() && array->validity == nullptr && (kind == Kind::uint64 || kind == Kind::int64)) {
        return static_cast<const std::int64_t*>(array->data)[array->first + at];
    }
    return mapping.value({array, at}).cast<std::int64_t>();
}

}  // namespace

Table::Table(py::tuple names, const py::list& columns, py::object fallback, std::vector<Look> looks)
    : names_(std::move(names)), fallback_(std::move(fallback)) {
    if (names_.size() != columns.size()) {
        throw py::value_error(message("there are ", names_.size(), " names for ", columns.size(), " columns"));
    }
    looks.resize(names_.size());
    for (std::size_t i = 0; i < names_.size(); ++i) {
        const py::object name = names_[i], values = columns[i];
        const auto* const flat = py::isinstance<FlatColumn>(values) ? &values.cast<const FlatColumn&>() : nullptr;
        const std::int64_t size = flat != nullptr ? flat->size() : length_of(values);
        if (i > 0 && size != size_) {
            throw py::value_error(message("column '", text(name), "' has ", size, " rows where '", text(names_[0]),
                                          "' has ", size_, ": give one value per row"));
        }
        size_ = size;
        if (find(name) != nullptr) {
            throw py::value_error("there are two columns '" + text(name) + "': rename one");
        }
        const auto [form, kind] = looks[i];
        columns_.push_back({name, values, flat, form, kind});
    }
}

const Table::NamedColumn* Table::find(const py::handle& name) const {
    const auto is_named = [&](const NamedColumn& column) { return column.name.is(name) || column.name.equal(name); };
    const auto column = std::find_if(columns_.begin(), columns_.end(), is_named);
    return column == columns_.end() ? nullptr : &*column;
}

py::object Table::fallback_value(const NamedColumn& column, std::int64_t row) const {
    if (fallback_.is_none()) {
        throw py::type_error("column '" + text(column.name) + "' has the Arrow type '" + column.flat->type().format +
                             "', which is neither a number, nor text, nor a list of these: leave the column out");
    }
    return fallback_(column.name, row);
}

py::object Table::value(const NamedColumn& column, std::int64_t row) const {
    const FlatColumn* const flat = column.flat;
    if (flat == nullptr) {
        return taken(PySequence_GetItem(column.values.ptr(), row));
    }
    if (column.form != 0) {
        return fallback_value(column, row);
    }
    const py::object value = read_value(column.name, row, [&] { return flat->value(flat->element(row)); });
    return value ? value : fallback_value(column, row);
}

py::dict Table::row(std::int64_t row) const {
    py::dict result;
    for (const NamedColumn& column : columns_) {
        result[column.name] = value(column, row);
    }
    return result;
}

TableRows::TableRows(py::object table, const py::object& keys, const FlatColumn* mapping)
    : table_owner_(std::move(table)), table_(&table_owner_.cast<const Table&>()) {
    const std::int64_t size = mapping != nullptr ? mapping->size() : table_->size();
    if (keys.is_none()) {
        rows_.resize(static_cast<std::size_t>(size));
        std::iota(rows_.begin(), rows_.end(), std::int64_t{0});
    } else {
        read_keys(keys, size, mapping);
    }
    if (mapping != nullptr) {
        for (std::int64_t& row : rows_) {
            row = in_range(looked_up(*mapping, row), table_->size());
        }
    }
}

void TableRows::read_keys(const py::object& keys, std::int64_t size, const FlatColumn* mapping) {
    const py::object fast = as_it_is_now(taken(PySequence_Fast(keys.ptr(), "rows are given by numbers")));
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast.ptr());
    rows_.reserve(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count && i < PySequence_Fast_GET_SIZE(fast.ptr()); ++i) {
        const auto item = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(fast.ptr(), i));
        const py::object number = taken(PyNumber_Index(item.ptr()));  // NumPy integers too
        int overflow = 0;
        const std::int64_t key = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
        if (overflow != 0) {
            refuse_key(text(number), size);
        }
        rows_.push_back(in_range(key, size));
        if (mapping != nullptr) {
            mapping->prefetch(mapping->element(rows_.back()));
        }
    }
}

std::int64_t TableRows::at(std::int64_t i) const { return rows_[static_cast<std::size_t>(in_range(i, size()))]; }

TableRows::TableRows(const TableRows& whole, std::int64_t first, std::int64_t step, std::int64_t count)
    : table_owner_(whole.table_owner_), table_(whole.table_), handed_out_(whole.handed_out_) {
    for (std::int64_t i = 0; i < count; ++i) {
        rows_.push_back(whole.at(first + i * step));
    }
}

py::object TableRows::value(const py::handle& name, std::int64_t i) const {
    const Table::NamedColumn* const column = table_->find(name);
    if (column == nullptr) {
        throw py::key_error(text(name));
    }
    return table_->value(*column, at(i));
}

bool TableRows::collect(const py::handle& name, Columns* columns, bool skips) const {
    const Table::NamedColumn* const column = table_->find(name);
    if (column == nullptr) {
        return false;
    }
    Column& out = columns->columns.emplace_back(size());
    const FlatColumn* const flat = column->flat;
    if (flat == nullptr) {
        for (const std::int64_t row : rows_) {
            py::object value = table_->value(*column, row);
            if (!skips || !value.is_none()) {
                out.hold(std::move(value));
            }
        }
        return true;
    }
    // Where a row lies, how long it is, its numbers: each look may wait for memory, so all rows at once.
    std::vector<FlatColumn::Element> elements;
    elements.reserve(rows_.size());
    for (const std::int64_t row : rows_) {
        elements.push_back(flat->element(row));
        flat->prefetch(elements.back());
    }
    const std::uint32_t look = column->form, form = look != 0 ? look : flat->is_numbers() ? form_number : form_list;
    Trailing trailing;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        Row row;
        if (skips && flat->is_missing(elements[i])) {
            continue;
        }
        const bool is_row = read_value(column->name, rows_[i], [&] {
            if (look == form_other || out.holds_more_than_seen() || !flat->row(elements[i], &row, &trailing)) {
                return false;
            }
            if (!is_told(trailing)) {
                trailing = out.rows.empty() ? told_by_any(*flat, elements) : out.trailing;
            }
            return true;
        });
        if (is_row) {
            out.add_as(row, form | (trailing.empty() ? 0U : form_deep),
                       look != 0 ? column->kind : kind_in_python(row.kind), trailing);
        } else {
            out.hold(table_->value(*column, rows_[i]));
        }
    }
    return true;
}

bool TableRows::collect_choices(const py::handle& name, std::int64_t choices, Column* out) const {
    const Table::NamedColumn* const column = table_->find(name);
    if (column == nullptr || column->flat == nullptr || column->form != 0) {
        return false;
    }
    const FlatColumn& flat = *column->flat;
    std::vector<Row> choice_rows;
    choice_rows.reserve(rows_.size() * static_cast<std::size_t>(choices));
    for (const std::int64_t row : rows_) {
        if (!read_value(column->name, row, [&] { return flat.rows(flat.element(row), choices, &choice_rows); })) {
            return false;
        }
    }
    for (const Row& row : choice_rows) {
        out->add_as(row, form_list, kind_in_python(row.kind));
    }
    return true;
}

bool TableRows::gather(const py::tuple& names, const std::function<bool(std::size_t, py::object)>& take) const {
    for (std::int64_t i = 0; i < size(); ++i) {
        for (std::size_t c = 0; c < names.size(); ++c) {
            if (!take(c, value(names[c], i))) {
                return false;
            }
        }
    }
    return true;
}

const TableRows* table_rows(const py::handle& features) {
    if (!py::isinstance<TableRows>(features)) {
        return nullptr;
    }
    const auto& rows = features.cast<const TableRows&>();
    return rows.handed_out() ? nullptr : &rows;
}

void register_table(py::module_& m) {
    bind_class<Table>(m, "Table")
        .def(py::init<py::tuple, const py::list&, py::object, std::vector<Table::Look>>(), "names"_a, "columns"_a,
             "fallback"_a = py::none(), "looks"_a = std::vector<Table::Look>())
        .def_property_readonly("names", &Table::names)
        .def("__len__", &Table::size)
        .def(
            "row",
            [](const Table& self, std::int64_t key, const FlatColumn* mapping) {
                const auto place = mapping != nullptr ? looked_up(*mapping, in_range(key, mapping->size())) : key;
                return self.row(in_range(place, self.size()));
            },
            "key"_a, "mapping"_a = py::none());
    bind_class<TableRows>(m, "TableRows")
        .def(py::init<py::object, const py::object&, const FlatColumn*>(), "table"_a, "keys"_a = py::none(),
             "mapping"_a = py::none())
        .def(py::init<const TableRows&, std::int64_t, std::int64_t, std::int64_t>(), "rows"_a, "first"_a, "step"_a,
             "count"_a)
        .def("__len__", &TableRows::size)
        .def_property_readonly("names", [](const TableRows& self) { return self.table().names(); })
        .def_property_readonly("handed_out", &TableRows::handed_out)
        .def("hand_out", &TableRows::hand_out)
        .def("row", &TableRows::row, "i"_a)
        .def("value", &TableRows::value, "name"_a, "i"_a);
}

}  // namespace quadrat
