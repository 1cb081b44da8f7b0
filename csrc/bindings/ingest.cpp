// Features to columns: the only code that asks what kind of Python object a row is.
#include <pybind11/numpy.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "columns.hpp"
#include "decode.hpp"
#include "table.hpp"

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

bool array_kind(char letter, std::int64_t bytes, Kind* out) {
    const auto pick = [&](Kind one, Kind two, Kind four, Kind eight) {
        *out = bytes == 1 ? one : bytes == 2 ? two : bytes == 4 ? four : eight;
        return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
    };
    switch (letter) {
        case 'b':
            *out = Kind::bool_;
            return bytes == 1;
        case 'i':
            return pick(Kind::int8, Kind::int16, Kind::int32, Kind::int64);
        case 'u':
            return pick(Kind::uint8, Kind::uint16, Kind::uint32, Kind::uint64);
        case 'f':
            *out = bytes == 4 ? Kind::float32 : Kind::float64;
            return bytes == 4 || bytes == 8;
        default:
            return false;
    }
}

bool view_array(PyObject* object, Row* row) {
    const auto array = py::reinterpret_borrow<py::array>(object);
    const py::dtype dtype = array.dtype();
    const char order = dtype.byteorder();
    if (array.ndim() != 1 || (order != '=' && order != '|') ||
        !array_kind(dtype.kind(), dtype.itemsize(), &row->kind)) {
        return false;
    }
    row->data = array.data();
    row->length = array.shape(0);
    row->stride = array.strides(0);
    return true;
}

bool view_tensor(PyObject* object, const Interop& interop, Row* row) {
    if (interop.exchange() == nullptr) {
        const py::object seen = interop.describe()(py::handle(object));
        if (seen.is_none()) {
            return false;
        }
        const auto fields = seen.cast<std::tuple<std::uintptr_t, std::int64_t, std::int64_t, int>>();
        row->data = reinterpret_cast<const void*>(std::get<0>(fields));
        row->length = std::get<1>(fields);
        row->stride = std::get<2>(fields);
        row->kind = static_cast<Kind>(std::get<3>(fields));
        return true;
    }
    dlpack::Tensor view{};
    if (interop.exchange()->view_of_object(object, &view) != 0) {
        PyErr_Clear();  // sparse, meta and other tensors without memory of their own: the reference's business
        return false;
    }
    const char letter = view.dtype.code == dlpack::signed_integer     ? 'i'
                        : view.dtype.code == dlpack::unsigned_integer ? 'u'
                        : view.dtype.code == dlpack::floating         ? 'f'
                        : view.dtype.code == dlpack::boolean          ? 'b'
                                                                      : '?';
    if (view.device.type != dlpack::device_cpu || view.ndim != 1 || view.dtype.lanes != 1 ||
        !array_kind(letter, view.dtype.bits / 8, &row->kind)) {
        return false;
    }
    // The exchange shows the stored numbers: a lazily negated view (x.imag of a conjugate) means others, and a tensor
    // that records gradients is more than its numbers.
    const py::handle tensor(object);
    if (letter == 'f' && (tensor.attr("requires_grad").cast<bool>() || tensor.attr("is_neg")().cast<bool>())) {
        return false;
    }
    row->data = static_cast<const char*>(view.data) + view.byte_offset;
    row->length = view.shape[0];
    row->stride = (view.strides == nullptr ? 1 : view.strides[0]) * static_cast<std::int64_t>(item_size(row->kind));
    return true;
}

// A new reference to sequence[i] of a list or tuple; empty where it has shrunk meanwhile.
py::object item_of(PyObject* sequence, Py_ssize_t i) {
    auto item = py::reinterpret_steal<py::object>(PySequence_GetItem(sequence, i));
    if (!item) {
        PyErr_Clear();
    }
    return item;
}

// The row in `object` and its form; anything unknown is form_other with length 0.
std::uint32_t view(PyObject* object, const Interop& interop, Row* row) {
    *row = Row{};
    if (PyList_CheckExact(object) || PyTuple_CheckExact(object)) {
        const bool list = PyList_CheckExact(object);
        row->length = list ? PyList_GET_SIZE(object) : PyTuple_GET_SIZE(object);
        if (row->length > 0) {
            const py::object first = item_of(object, 0);
            if (!first || !number_kind(first.ptr(), &row->kind)) {
                *row = Row{};
                return form_other;
            }
        }
        return list ? form_list : form_tuple;
    }
    if (number_kind(object, &row->kind)) {
        row->length = 1;
        return form_number;
    }
    if (interop.is_ndarray(object)) {
        return view_array(object, row) ? form_array : form_other;
    }
    if (interop.is_tensor(object)) {
        return view_tensor(object, interop, row) ? form_tensor : form_other;
    }
    return form_other;
}

// A new reference to mapping[name], or null with no error set.
PyObject* lookup(PyObject* mapping, PyObject* name) {
    PyObject* found = nullptr;
    if (PyDict_CheckExact(mapping)) {
#if PY_VERSION_HEX >= 0x030D0000
        PyDict_GetItemRef(mapping, name, &found);
#else
        found = PyDict_GetItemWithError(mapping, name);
        Py_XINCREF(found);
#endif
    } else {
        found = PyObject_GetItem(mapping, name);
    }
    if (found == nullptr) {
        PyErr_Clear();  // the reference raises this user's error again, in its own words
    }
    return found;
}

void prefetch(const void* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address);
#else
    static_cast<void>(address);
#endif
}

// A batch of features comes cold from the heap: dict, its keys, its values, their buffers, each a miss that waits for
// the one before. Walking a block of rows level by level lets the misses of one level overlap.
class Walk {
public:
    static constexpr Py_ssize_t block = 64;

    Walk(const py::object& features, const Interop& interop) : features_(features), interop_(interop) {}

    // Fills `values` with the block's values, row by row; false when a row lacks a name or the batch has shrunk.
    bool gather(Py_ssize_t first, Py_ssize_t count, const py::tuple& names, std::vector<py::object>* values) {
        rows_.clear();
        for (Py_ssize_t i = first; i < first + count; ++i) {
            py::object row = item_of(features_.ptr(), i);
            if (!row) {
                return false;
            }
            prefetch(reinterpret_cast<const char*>(row.ptr()) + 32);
            rows_.push_back(std::move(row));
        }
        for (py::object& row : rows_) {
            if (interop_.is_wrapper(row.ptr())) {
                row = row.attr("data");
            }
            if (PyDict_CheckExact(row.ptr())) {
                const char* const keys =
                    reinterpret_cast<const char*>(reinterpret_cast<const PyDictObject*>(row.ptr())->ma_keys);
                prefetch(keys);
                prefetch(keys + 64);
            }
        }
        values->clear();
        for (const py::object& row : rows_) {
            for (const py::handle name : names) {
                auto value = py::reinterpret_steal<py::object>(lookup(row.ptr(), name.ptr()));
                if (!value) {
                    return false;
                }
                prefetch(reinterpret_cast<const char*>(value.ptr()) + 32);
                values->push_back(std::move(value));
            }
        }
        for (const py::object& value : *values) {
            if (PyList_CheckExact(value.ptr())) {
                prefetch(reinterpret_cast<const PyListObject*>(value.ptr())->ob_item);
            } else if (interop_.is_ndarray(value.ptr())) {
                prefetch(py::reinterpret_borrow<py::array>(value).shape());
            }
        }
        return true;
    }

private:
    const py::object& features_;
    const Interop& interop_;
    std::vector<py::object> rows_;
};

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
