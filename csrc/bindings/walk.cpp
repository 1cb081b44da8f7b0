// Features to values, level by level.
#include "walk.hpp"

#include <pybind11/numpy.h>

#include <utility>

#include "prefetch.hpp"
#include "tensor_parts.hpp"
#include "view.hpp"

namespace quadrat {
namespace {

void prefetch_lines(const char* first, int lines) {
    for (int line = 0; first != nullptr && line < lines; ++line) {
        prefetch(first + 64 * line);
    }
}

// What the processor's own prefetcher needs to see before it goes on by itself.
constexpr int lines_ahead = 4;

}  // namespace

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

// Asks for what a view of each value reads, and for the first lines of its data.
void Walk::look_ahead(const std::vector<py::object>& values) {
    constexpr int implementation_lines = 4, storage_lines = 2;
    parts_.clear();
    for (const py::object& value : values) {
        if (PyList_CheckExact(value.ptr())) {
            prefetch(reinterpret_cast<const PyListObject*>(value.ptr())->ob_item);
        } else if (interop_.is_ndarray(value.ptr())) {
            const auto* const array = py::detail::array_proxy(value.ptr());
            prefetch(array->dimensions);
            prefetch_lines(array->data, lines_ahead);
        } else if (interop_.knows_tensors() && interop_.is_tensor(value.ptr())) {
            parts_.push_back(next_part(value.ptr()));
            prefetch_lines(parts_.back(), implementation_lines);
        }
    }
    for (const char*& part : parts_) {
        part = part == nullptr ? nullptr : next_part(part);  // null for tensors without a storage
        prefetch_lines(part, storage_lines);
    }
    for (const char* const part : parts_) {
        prefetch_lines(part == nullptr ? nullptr : next_part(part), lines_ahead);
    }
}

bool Walk::gather(Py_ssize_t first, Py_ssize_t count, const py::tuple& names, std::vector<py::object>* values) {
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
            const char* const object = reinterpret_cast<const char*>(value.ptr());
            prefetch(object);
            prefetch(object + 63);  // an object of more than a line, or across two
            values->push_back(std::move(value));
        }
    }
    look_ahead(*values);
    return true;
}

}  // namespace quadrat
