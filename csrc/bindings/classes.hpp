// How classes are bound.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "casters.hpp"

namespace quadrat {

// Gives a new instance its holder. pybind11's own function also enters the instance in a map, to find it by the address
// of its value, which nobody asks for here. Where there is no memory for the entry, pybind11 frees the value twice, or
// ends the process, as an exception then passes through the interpreter; this function needs no memory.
template <typename T, typename Holder>
void init_instance(py::detail::instance* self, const void* given) {
    py::detail::value_and_holder value = self->get_value_and_holder(py::detail::get_type_info(typeid(T)));
    void* const place = std::addressof(value.template holder<Holder>());
    if (given != nullptr) {
        const auto* const holder = static_cast<const Holder*>(given);
        if constexpr (std::is_copy_constructible_v<Holder>) {
            new (place) Holder(*holder);
        } else {
            new (place) Holder(std::move(*const_cast<Holder*>(holder)));
        }
    } else {
        new (place) Holder(value.template value_ptr<T>());
    }
    value.set_holder_constructed();
}

// pybind11 writes to a new instance before it looks whether there is one. From C++ it asks for it here.
inline PyObject* allocate_instance(PyTypeObject* type, Py_ssize_t items) {
    PyObject* const made = PyType_GenericAlloc(type, items);
    if (made == nullptr) {
        throw py::error_already_set();
    }
    return made;
}

// From Python, which no exception may pass through, it is made here.
inline PyObject* new_instance(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* const made = PyType_GenericAlloc(type, 0);
    if (made != nullptr) {
        reinterpret_cast<py::detail::instance*>(made)->allocate_layout();
    }
    return made;
}

// As py::class_, for where memory may be short. The module only casts new instances, and has no two for one value.
template <typename T, typename... Options>
py::class_<T, Options...> bind_class(py::module_& m, const char* name) {
    py::class_<T, Options...> made(m, name);
    using Holder = typename py::class_<T, Options...>::holder_type;
    py::detail::get_type_info(typeid(T))->init_instance = init_instance<T, Holder>;
    auto* const type = reinterpret_cast<PyTypeObject*>(made.ptr());
    type->tp_alloc = allocate_instance;
    type->tp_new = new_instance;
    return made;
}

}  // namespace quadrat
