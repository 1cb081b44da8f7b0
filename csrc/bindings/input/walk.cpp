// Features to values, level by level.
#include "walk.hpp"

namespace quadrat {
namespace {

py::object attribute(const py::object& feature, const char* name) {
    auto value = py::reinterpret_steal<py::object>(PyObject_GetAttrString(feature.ptr(), name));
    clear_error();
    return value;
}

// All that a mappingproxy refers to, which Python does not give out.
py::object shown_by(const py::object& proxy) {
    py::object shown;
    const auto take = [](PyObject* object, void* out) {
        *static_cast<py::object*>(out) = py::reinterpret_borrow<py::object>(object);
        return 1;
    };
    Py_TYPE(proxy.ptr())->tp_traverse(proxy.ptr(), take, &shown);
    return shown;
}

// As a ChainMap gives keys and values: the first of the dicts comes last, and wins.
py::object joined(const py::object& maps) {
    if (!maps || !PyList_CheckExact(maps.ptr())) {
        return {};
    }
    py::object all = py::dict();
    for (Py_ssize_t i = PyList_GET_SIZE(maps.ptr()); i-- > 0;) {
        const py::object map = item_of(maps.ptr(), i);
        if (!map || !PyDict_CheckExact(map.ptr()) || PyDict_Update(all.ptr(), map.ptr()) != 0) {
            clear_error();
            return {};
        }
    }
    return all;
}

}  // namespace

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
    if (Py_TYPE(feature.ptr()) == &PyDictProxy_Type) {
        return if_dict(shown_by(feature));
    }
    switch (interop_.is_wrapper(feature.ptr()) ? Way::wrapper : way_of(feature.ptr())) {
        case Way::dict:
            return feature;
        case Way::wrapper:
            return if_dict(attribute(feature, "data"));
        case Way::chain:
            return joined(attribute(feature, "maps"));
        case Way::opaque:
            break;
    }
    return {};
}

py::object PlainDicts::if_dict(py::object held) {
    const bool plain = held && (PyDict_CheckExact(held.ptr()) || way_of(held.ptr()) == Way::dict);
    return plain ? held : py::object();
}

py::object Walk::lookup(const py::object& dict, PyObject* name, bool* failed) {
    PyObject* value = nullptr;
#if PY_VERSION_HEX >= 0x030D0000
    PyDict_GetItemRef(dict.ptr(), name, &value);
#else
    value = PyDict_GetItemWithError(dict.ptr(), name);
    Py_XINCREF(value);
#endif
    if (value == nullptr && PyErr_Occurred() != nullptr) {
        clear_error();
        if (failed != nullptr) {
            *failed = true;
        }
    }
    return py::reinterpret_steal<py::object>(value);
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
