// How functions and classes are bound. This replaces internals of pybind11 3.0 and 3.1, without which a lack of memory
// ends the process: before a later version is allowed, test_no_memory_to_remember_an_instance must pass with it.
#pragma once

#include <new>
#include <type_traits>

#include "casters.hpp"

namespace quadrat {

// One function per concept adds it to the module; module.cpp calls them.
using Register = void(py::module_&);

Register register_allocate, register_arrow, register_columns, register_constants, register_flat_column,
    register_generator, register_interop, register_kernels, register_labels, register_recipe, register_table;

// For what takes long and touches no Python object.
using WithoutGil = py::call_guard<py::gil_scoped_release>;

// Gives a new instance its holder. pybind11's own function also enters the instance in a map, to find it by the address
// of its value, which nobody asks for here. Where there is no memory for the entry, pybind11 frees the value twice, or
// ends the process, as an exception then passes through the interpreter; this function needs no memory.
template <typename T, typename Holder>
void init_instance(py::detail::instance* self, const void* source) {
    py::detail::value_and_holder value = self->get_value_and_holder(py::detail::get_type_info(typeid(T)));
    void* const place = std::addressof(value.template holder<Holder>());
    if (source != nullptr) {
        const auto* const holder = static_cast<const Holder*>(source);
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
    PyObject* const instance = PyType_GenericAlloc(type, items);
    if (instance == nullptr) {
        throw py::error_already_set();
    }
    return instance;
}

// From Python, which no exception may pass through, it is made here.
inline PyObject* new_instance(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* const instance = PyType_GenericAlloc(type, 0);
    if (instance != nullptr) {
        reinterpret_cast<py::detail::instance*>(instance)->allocate_layout();
    }
    return instance;
}

// The value of an instance, by a plain read; null while it is made. No class here has more than one base.
template <typename T>
T* value_of(PyObject* self) {
    const auto* const instance = reinterpret_cast<py::detail::instance*>(self);
    const bool is_complete = instance->simple_layout && instance->simple_holder_constructed;
    return is_complete ? static_cast<T*>(instance->simple_value_holder[0]) : nullptr;
}

template <typename T, typename = void>
struct HoldsObjects : std::false_type {};
template <typename T>
struct HoldsObjects<T, std::void_t<decltype(std::declval<const T&>().traverse(std::declval<Visitor&>()))>>
    : std::true_type {};

template <typename T>
int traverse_instance(PyObject* self, visitproc visit, void* argument) {
    Visitor visitor{visit, argument};
    visitor(py::handle(reinterpret_cast<PyObject*>(Py_TYPE(self))));
    if (const T* const value = value_of<T>(self)) {
        value->traverse(visitor);
    }
    return visitor.result;
}

// Has the garbage collector see what instances hold. As tuples they need no tp_clear: what they hold was there before
// them, so a cycle goes through an object that was changed later, and that one is cleared.
template <typename T>
void set_up_type(PyHeapTypeObject* heap_type) {
    if constexpr (HoldsObjects<T>::value) {
        heap_type->ht_type.tp_flags |= Py_TPFLAGS_HAVE_GC;
        heap_type->ht_type.tp_traverse = traverse_instance<T>;
    }
}

// As py::class_, for where memory may be short. The module only casts new instances, and has no two for one value. A
// class that holds Python objects has a member `void traverse(Visitor&) const`.
template <typename T, typename... Options>
py::class_<T, Options...> bind_class(py::module_& m, const char* name) {
    py::class_<T, Options...> cls(m, name, py::custom_type_setup(set_up_type<T>));
    using Holder = typename py::class_<T, Options...>::holder_type;
    py::detail::get_type_info(typeid(T))->init_instance = init_instance<T, Holder>;
    auto* const type = reinterpret_cast<PyTypeObject*>(cls.ptr());
    type->tp_alloc = allocate_instance;
    type->tp_new = new_instance;
    return cls;
}

}  // namespace quadrat
