// A batch that comes as columns: a table, and which of its rows. Features for the collators without a Python object per
// row; what Python asks of a row is made when it asks.
#pragma once

#include <atomic>
#include <functional>
#include <tuple>

#include "columns.hpp"
#include "flat_column.hpp"

namespace quadrat {

class Table {
public:
    // What the values of a column are to other code: the form of a row, 0 for Python's lists and numbers, form_other
    // for objects, see `fallback`; and the kind of its numbers.
    using Look = std::tuple<std::uint32_t, Kind>;

    // columns: one per name, a FlatColumn, or a list or tuple of one value per row; all of one length. fallback: a
    // function (name, row) that gives the values that FlatColumn knows no form for, or None. looks: one per name, or
    // none; where rows do not look like Python's lists and numbers, `fallback` gives their values.
    Table(py::tuple names, const py::list& columns, py::object fallback, std::vector<Look> looks);

    void traverse(Visitor& visit) const {
        visit(names_, fallback_);
        for (const NamedColumn& column : columns_) {
            visit(column.name, column.values);
        }
    }

    const py::tuple& names() const { return names_; }
    std::int64_t size() const { return size_; }
    struct NamedColumn {
        py::object name, values;
        const FlatColumn* flat;  // that `values` is, or null
        std::uint32_t form;      // and kind: see Look
        Kind kind;
    };
    // Null where there is none of this name.
    const NamedColumn* find(const py::handle& name) const;
    // A value, or a row as a dict; `row` must be one.
    py::object value(const NamedColumn& column, std::int64_t row) const;
    py::dict row(std::int64_t row) const;

private:
    py::object fallback_value(const NamedColumn& column, std::int64_t row) const;

    py::tuple names_;
    std::vector<NamedColumn> columns_;
    py::object fallback_;
    std::int64_t size_ = 0;
};

class TableRows {
public:
    // keys: which rows, negative ones counted from the end; None for all. mapping: a column of numbers to look the keys
    // up in first. Throws IndexError for a key that is out of range.
    TableRows(py::object table, const py::object& keys, const FlatColumn* mapping);

    void traverse(Visitor& visit) const { visit(table_owner_); }

    const Table& table() const { return *table_; }
    std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }
    // `count` of the rows, `step` apart.
    TableRows(const TableRows& whole, std::int64_t first, std::int64_t step, std::int64_t count);
    // Whether Python was given rows of this batch as dicts, which may have been changed: then the columns no longer say
    // what the rows are. A batch and its slices are handed out together, because they share their dicts.
    bool handed_out() const { return handed_out_->load(std::memory_order_relaxed); }
    void hand_out() { handed_out_->store(true, std::memory_order_relaxed); }
    // Row i as a dict, and the value it has under a name; IndexError, KeyError.
    py::dict row(std::int64_t i) const { return table_->row(at(i)); }
    py::object value(const py::handle& name, std::int64_t i) const;
    bool has(const py::handle& name) const { return table_->find(name) != nullptr; }

    // One column, as if its values came in lists; false where there is none of this name. skips: without those that are
    // null.
    bool collect(const py::handle& name, Columns* columns, bool skips = false) const;
    // The first `choices` rows that each value of a column is a list of; false where they are not rows of numbers.
    bool collect_choices(const py::handle& name, std::int64_t choices, Column* out) const;
    // The values as Python objects, row by row, as Walk::gather gives them.
    bool gather(const py::tuple& names, const std::function<bool(std::size_t, py::object)>& take) const;

private:
    // Appends the rows that `keys` name, of `size`.
    void read_keys(const py::object& keys, std::int64_t size, const FlatColumn* mapping);
    std::int64_t at(std::int64_t i) const;

    py::object table_owner_;
    const Table* table_;
    std::vector<std::int64_t> rows_;
    std::shared_ptr<std::atomic<bool>> handed_out_ = std::make_shared<std::atomic<bool>>(false);
};

// The rows that an object is, or null; null too where they are handed out, because their dicts are to be read then.
const TableRows* table_rows(const py::handle& features);

}  // namespace quadrat
