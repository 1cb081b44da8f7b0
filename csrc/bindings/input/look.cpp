// Values to rows: the look at all that the columns of a batch hold, and the second one where something may have moved.
#include <pybind11/numpy.h>

#include <algorithm>
#include <optional>

#include "columns.hpp"
#include "walk.hpp"

namespace quadrat {

// For each value of a batch: a call would cost as much.
[[gnu::always_inline]] inline void Column::see(const Row& row, std::uint32_t form, std::int64_t length) {
    min_length = rows.empty() ? length : std::min(min_length, length);
    max_length = std::max(max_length, length);
    first_form = rows.empty() ? form : first_form;
    forms |= form;
    kinds |= row.length > 0 && form != form_other ? 1U << static_cast<unsigned>(row.kind) : 0U;
    total += length;
    objects |= row.data == nullptr && row.length > 0;
    rows.push_back(row);
    lengths.push_back(length);
}

namespace {

constexpr std::uint32_t tensor_forms = form_tensor | form_tensor_number;

// torch asks its function modes, which are the user's code, even about an attribute; not while one of these lives.
class WithoutModes {
public:
    // derived: for tensors of classes derived from torch's, about which it asks Python code of its own.
    WithoutModes(const Interop& interop, bool derived) {
        if (derived ? !interop.without_modes.is_none() : interop.in_mode()) {
            context_ = interop.without_modes();
            context_.attr("__enter__")();
        }
    }
    ~WithoutModes() {
        if (!context_) {
            return;
        }
        const auto left = py::reinterpret_steal<py::object>(
            PyObject_CallMethod(context_.ptr(), "__exit__", "OOO", Py_None, Py_None, Py_None));
        if (!left) {
            PyErr_WriteUnraisable(context_.ptr());
        }
    }
    WithoutModes(const WithoutModes&) = delete;
    WithoutModes& operator=(const WithoutModes&) = delete;

private:
    py::object context_;
};

enum class Tensors : std::uint8_t { none, plain, derived };

Tensors tensors_in(PyObject* value, const Interop& interop) {
    return interop.is_tensor(value)                 ? Tensors::plain
           : interop.base_of(value) == Base::tensor ? Tensors::derived
                                                    : Tensors::none;
}

// Asks for what a view of each value of a block reads, and for the first lines of its data: of values that no column
// has seen yet. Returns what there is among them.
Tensors look_ahead(const std::vector<Column>& columns, std::size_t end, const Interop& interop) {
    Tensors tensors = Tensors::none;
    std::vector<const char*> parts;  // of tensors
    const auto look_at = [&](PyObject* value) {
        if (PyList_CheckExact(value)) {
            prefetch(peek(&reinterpret_cast<const PyListObject*>(value)->ob_item));
        } else if (interop.is_ndarray(value)) {
            const auto* const array = py::detail::array_proxy(value);
            prefetch(array->dimensions);
            prefetch_lines(array->data, bytes_ahead);
        } else if (const Tensors kind = tensors_in(value, interop); kind != Tensors::none) {
            tensors = std::max(tensors, kind);
            if (kind == Tensors::plain && interop.knows_tensors) {
                parts.push_back(next_part(value, sizeof(PyObject)));
            }
        }
    };
    for (const Column& column : columns) {
        for (std::size_t i = column.rows.size(); i < std::min(end, column.owners.size()); ++i) {
            look_at(column.owners[i].ptr());
        }
    }
    constexpr std::int64_t implementation_bytes = 256, storage_bytes = 128;
    for (const char* const part : parts) {
        prefetch_lines(part, implementation_bytes);
    }
    for (const char*& part : parts) {
        part = part == nullptr ? nullptr : next_part(part);  // null for tensors without a storage
        prefetch_lines(part, storage_bytes);
    }
    for (const char* const part : parts) {
        prefetch_lines(part == nullptr ? nullptr : next_part(part), bytes_ahead);
    }
    return tensors;
}

void look_at(std::size_t end, const Interop& interop, Column* column) {
    // A finalizer may move a tensor between the answer to where it is and the copy.
    std::optional<WithoutCollection> meanwhile;
    if (interop.exchange == nullptr) {
        meanwhile.emplace();
    }
    Trailing dimensions;
    for (std::size_t i = column->rows.size(); i < std::min(end, column->owners.size()); ++i) {
        Row row;
        const std::uint32_t form = view(column->owners[i].ptr(), interop, &row, &dimensions);
        column->movable |= (form & (form_array | tensor_forms)) != 0;
        if (form == form_other) {
            PyObject* const value = column->owners[i].ptr();
            if (i == 0) {
                column->others |= value == Py_None ? trait_none : PyUnicode_Check(value) ? trait_text : 0U;
            }
            column->others &=
                ~static_cast<std::uint32_t>(value == Py_None ? trait_shaped : trait_nothing | trait_shaped);
        }
        if ((form & form_deep) != 0 || !column->trailing.empty()) {
            column->see_deep(row, form, (form & form_deep) != 0 ? dimensions : Trailing());
        } else {
            column->see(row, form, row.length);
        }
        if ((form & tensor_forms) != 0 && interop.exchange == nullptr) {
            // It takes Python code to ask about a tensor: the next question may move this one.
            column->keep(column->rows.back().kind, &column->rows.back());
        }
    }
}

}  // namespace

void Column::see_deep(const Row& row, std::uint32_t form, const Trailing& dimensions) {
    constexpr std::uint32_t lists = form_list | form_tuple;
    const bool only_lists = ((forms | form) & ~(lists | form_deep)) == 0;  // an empty one fits all others
    if (const std::int64_t elements = elements_of(dimensions);
        (rows.empty() || (only_lists && max_length == 0)) && elements >= 0) {
        trailing = dimensions;
        inner = elements;
    }
    const bool fits = dimensions == trailing || (only_lists && row.length == 0);
    const std::int64_t elements = fits ? inner : elements_of(dimensions);
    const bool is_row = (form & (lists | form_array | form_tensor)) != 0 && elements >= 0;
    if (!fits && shapes.empty() && is_row) {
        std::vector<Trailing> seen;
        seen.reserve(rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i) {
            seen.push_back(shape(i));
        }
        shapes = std::move(seen);
    }
    if (!fits) {
        others &= ~static_cast<std::uint32_t>(is_row ? trait_nothing : trait_nothing | trait_shaped);
    }
    see(is_row || fits ? Row{row.data, row.length * elements, row.stride, row.kind} : Row{}, fits ? form : form_other,
        fits ? row.length : 0);
    kinds |= !fits && is_row && rows.back().length > 0 ? 1U << static_cast<unsigned>(row.kind) : 0U;
    if (!shapes.empty()) {
        shapes.push_back(fits ? trailing : dimensions);
        shapes.back().insert(shapes.back().begin(), row.length);
    }
}

void Column::see_kinds_of_empty() {
    const bool listed = (forms & (form_list | form_tuple)) != 0;
    for (std::size_t i = 0; i < rows.size() && (forms & form_other) == 0; ++i) {
        PyObject* const owner = owners[i].ptr();  // none where a table holds the rows
        if (owner == nullptr ? !listed : !PyList_CheckExact(owner) && !PyTuple_CheckExact(owner)) {
            kinds |= 1U << static_cast<unsigned>(rows[i].kind);
        }
    }
}

void Column::make_dense(const Interop& interop) {
    for (py::object& owner : owners) {
        if (owner && interop.is_tensor(owner.ptr())) {
            owner = owner.attr("contiguous")();
        } else if (owner && interop.is_ndarray(owner.ptr()) &&
                   (py::detail::array_proxy(owner.ptr())->flags & py::array::c_style) == 0) {
            owner = owner.attr("copy")();
        }
    }
}

void Columns::look(const Interop& interop) {
    std::optional<NoUserCode> meanwhile;
    if (!interop.calls_python()) {
        meanwhile.emplace();
    }
    interop_ = &interop;
    std::size_t count = 0;
    for (const Column& column : columns) {
        count = column.holds_more_than_seen() ? std::max(count, column.owners.size()) : count;
    }
    std::optional<WithoutModes> without_modes;
    Tensors tensors = Tensors::none;
    for (std::size_t end = Walk::block; end < count + Walk::block; end += Walk::block) {
        if (const Tensors kind = look_ahead(columns, end, interop); kind > tensors) {
            without_modes.emplace(interop, kind == Tensors::derived);
            tensors = kind;
        }
        for (Column& column : columns) {
            look_at(end, interop, &column);
        }
    }
    without_modes.reset();
    for (Column& column : columns) {
        if (column.keeps_kind && column.kinds == 0) {
            column.see_kinds_of_empty();
        }
    }
    if (meanwhile) {
        no_user_code_.emplace(std::move(*meanwhile));
    }
}

Status Columns::see_again(const Column& column, std::optional<NoUserCode>* meanwhile) const {
    if (!column.movable || no_user_code_) {
        return {};
    }
    std::optional<WithoutModes> without_modes;
    Tensors tensors = Tensors::none;
    meanwhile->emplace();
    for (std::size_t i = 0; i < column.owners.size(); ++i) {
        PyObject* const owner = column.owners[i].ptr();
        Row& seen = column.rows[i];
        const Tensors kind = owner == nullptr ? Tensors::none : tensors_in(owner, *interop_);
        if (owner == nullptr || seen.data == nullptr || (kind != Tensors::none && interop_->exchange == nullptr)) {
            continue;
        }
        if (kind > tensors) {
            without_modes.emplace(*interop_, kind == Tensors::derived);
            tensors = kind;
        }
        Row now;
        Trailing dimensions;
        const bool deep = (view(owner, *interop_, &now, &dimensions) & form_deep) != 0;
        dimensions = deep ? dimensions : Trailing();
        dimensions.insert(dimensions.begin(), now.length);
        if (now.stride != seen.stride || now.kind != seen.kind || now.data == nullptr ||
            dimensions != column.shape(i)) {
            return {Code::changed, static_cast<std::int64_t>(i)};
        }
        seen.data = now.data;
    }
    return {};
}

}  // namespace quadrat
