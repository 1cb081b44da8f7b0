// Features to values, level by level.
#include "walk.hpp"

#include "../errors.hpp"
#include "view.hpp"

namespace quadrat {

Way PlainDicts::way_of(PyObject* feature) {
    PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(feature));
    if (type != last_.ptr()) {
        last_ = py::reinterpret_borrow<py::object>(type);
        last_way_ = static_cast<Way>(interop_.way_to_read(type));
    }
    return last_way_;
}

py::object PlainDicts::dict_of(py::object feature) {
    if (!feature || PyDict_CheckExact(feature.ptr())) {
        return feature;
    }
    const Way way = interop_.is_wrapper(feature.ptr()) ? Way::wrapper : way_of(feature.ptr());
    if (way == Way::wrapper) {
        feature = py::reinterpret_steal<py::object>(PyObject_GetAttrString(feature.ptr(), "data"));
        clear_error();
        const bool plain = feature && (PyDict_CheckExact(feature.ptr()) || way_of(feature.ptr()) == Way::dict);
        return plain ? feature : py::object();
    }
    return way == Way::dict ? feature : py::object();
}

py::object Walk::lookup(const py::object& dict, PyObject* name) {
    PyObject* found = nullptr;
#if PY_VERSION_HEX >= 0x030D0000
    PyDict_GetItemRef(dict.ptr(), name, &found);
#else
    found = PyDict_GetItemWithError(dict.ptr(), name);
    Py_XINCREF(found);
#endif
    if (found == nullptr) {
        clear_error();
    }
    return py::reinterpret_steal<py::object>(found);
}

bool Walk::fetch(Py_ssize_t first, Py_ssize_t count) {
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
        row = dicts_.dict_of(std::move(row));
        if (!row) {
            return false;
        }
        const char* const keys =
            reinterpret_cast<const char*>(peek(&reinterpret_cast<const PyDictObject*>(row.ptr())->ma_keys));
        prefetch(keys);
        prefetch(keys + 64);
    }
    return true;
}

}  // namespace quadrat
