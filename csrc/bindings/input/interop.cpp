#include "interop.hpp"

#include <pybind11/critical_section.h>

#include <algorithm>
#include <string_view>

#include "../classes.hpp"
#include "walk.hpp"

namespace quadrat {
namespace {

// What Python itself keeps in a class, and what is called only where objects are made, shown, copied or pickled.
constexpr std::string_view kept_names =
    " __module__ __qualname__ __doc__ __dict__ __weakref__ __slots__ __annotations__ __annotate__ __annotate_func__ "
    "__annotations_cache__ __firstlineno__ __static_attributes__ __orig_bases__ __parameters__ __init_subclass__ "
    "__class_getitem__ __new__ __init__ __repr__ __str__ __reduce__ __reduce_ex__ __copy__ __deepcopy__ __getstate__ "
    "__setstate__ ";

PyTypeObject* type_at(const py::tuple& classes, std::size_t i) {
    return reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(classes.ptr(), static_cast<Py_ssize_t>(i)));
}

py::object names_of(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
    return py::reinterpret_steal<py::object>(PyType_GetDict(type));
#else
    return py::reinterpret_borrow<py::object>(type->tp_dict);
#endif
}

py::tuple lineage_of(PyTypeObject* type) { return py::reinterpret_borrow<py::tuple>(type->tp_mro); }

bool has(PyTypeObject* type, PyObject* name) {
    const py::tuple lineage = lineage_of(type);
    return std::any_of(lineage.begin(), lineage.end(), [&](const py::handle& cls) {
        return static_cast<bool>(Walk::lookup(names_of(reinterpret_cast<PyTypeObject*>(cls.ptr())), name));
    });
}

bool replaces_nothing(PyTypeObject* type, PyTypeObject* base) {
    const py::object names = names_of(type);
    const py::scoped_critical_section lock{names};
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(names.ptr(), &at, &key, &value) != 0;) {
        const char* const text = PyUnicode_CheckExact(key) ? PyUnicode_AsUTF8(key) : nullptr;
        if (text == nullptr) {
            clear_error();
            return false;
        }
        const std::string name = " " + std::string(text) + " ";
        if (name.compare(1, 2, "__") == 0 ? kept_names.find(name) == std::string_view::npos : has(base, key)) {
            return false;
        }
    }
    return true;
}

}  // namespace

Interop::Interop(const py::object& libraries)
    : describe(libraries.attr("describe")),
      make_tensor(libraries.attr("make_tensor")),
      make_shared(libraries.attr("make_shared")),
      without_modes(libraries.attr("without_modes")),
      is_negative(py::getattr(libraries.attr("tensor"), "is_neg", py::none())),
      ndarray_(libraries.attr("ndarray")),
      wrapper_(libraries.attr("wrapper")),
      tensor_(libraries.attr("tensor")),
      in_worker_(libraries.attr("in_worker")),
      way_to_read_(libraries.attr("way_to_read")),
      count_modes_(libraries.attr("count_modes")),
      forward_ad_(libraries.attr("forward_ad")),
      level_(py::reinterpret_steal<py::object>(PyUnicode_InternFromString("_current_level"))),
      plain_(libraries.attr("plain")) {
    if (!forward_ad_.is_none() && !PyDict_CheckExact(forward_ad_.ptr())) {
        throw py::type_error("forward_ad must be a dict");
    }
    for (const py::handle item : libraries.attr("scalars")) {
        const auto scalar = py::reinterpret_borrow<py::tuple>(item);
        scalars_.emplace_back(scalar[0], scalar[1].cast<Kind>());
    }
    const py::object capsule = libraries.attr("exchange");
    if (capsule.is_none()) {
        return;
    }
    const auto* const api = pointer_in<dlpack::ExchangeApi>(capsule, dlpack::capsule_name);
    // Another major version may order its fields otherwise: then the slower way serves.
    if (api->header.version.major == dlpack::abi_major && api->view_of_object != nullptr &&
        api->tensor_to_object != nullptr) {
        exchange = api;
    }
}

Base Interop::base_of_class(PyTypeObject* type) const {
    auto* base = reinterpret_cast<PyTypeObject*>(ndarray_.ptr());
    const bool array = PyType_IsSubtype(type, base) != 0;
    if (!array) {
        base = reinterpret_cast<PyTypeObject*>(tensor_.ptr());
        if (tensor_.is_none() || PyType_IsSubtype(type, base) == 0) {
            return Base::none;
        }
    }
    const py::tuple lineage = lineage_of(type);
    for (std::size_t i = 0; type_at(lineage, i) != base; ++i) {
        const auto is_same = [&](const py::handle& cls) { return cls.is(lineage[i]); };
        if (std::none_of(plain_.begin(), plain_.end(), is_same) && !replaces_nothing(type_at(lineage, i), base)) {
            return Base::none;
        }
    }
    return array ? Base::array : Base::tensor;
}

bool Interop::in_dual_level() const {
    if (forward_ad_.is_none()) {
        return false;
    }
    const py::object level = Walk::lookup(forward_ad_, level_.ptr());
    return !level || !PyLong_CheckExact(level.ptr()) || PyLong_AsLong(level.ptr()) >= 0;  // -1: in none
}

void Interop::learn_tensor(const py::object& tensor, std::uintptr_t implementation, std::uintptr_t storage) {
    constexpr std::size_t header = sizeof(PyObject);
    const bool has_room = static_cast<std::size_t>(Py_TYPE(tensor.ptr())->tp_basicsize) >= header + sizeof(void*);
    const char* const part = is_tensor(tensor.ptr()) && has_room ? next_part(tensor.ptr(), header) : nullptr;
    knows_tensors = part != nullptr && reinterpret_cast<std::uintptr_t>(part) == implementation &&
                    reinterpret_cast<std::uintptr_t>(next_part(part)) == storage && storage != 0;
}

void register_interop(py::module_& m) {
    bind_class<Interop>(m, "Interop")
        .def(py::init<const py::object&>(), "libraries"_a)
        .def_readwrite("may_be_worker", &Interop::may_be_worker)
        .def("learn_tensor", &Interop::learn_tensor, "tensor"_a, "implementation"_a, "storage"_a)
        .def_readonly("knows_tensors", &Interop::knows_tensors)
        .def_property_readonly("has_exchange", [](const Interop& self) { return self.exchange != nullptr; });
}

}  // namespace quadrat
