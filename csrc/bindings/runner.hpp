// A recipe as a plain C function, which is called without a look at argument types and overloads.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>

namespace quadrat {

namespace py = pybind11;

template <typename Recipe>
PyObject* run_of_capsule(PyObject* capsule, PyObject* const* arguments, Py_ssize_t count) {
    const auto* const recipe = static_cast<const Recipe*>(PyCapsule_GetPointer(capsule, Recipe::runner_name));
    if (recipe == nullptr) {
        return nullptr;
    }
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "run(collator, features) takes two arguments");
        return nullptr;
    }
    try {
        return recipe->run(arguments[0], py::reinterpret_borrow<py::object>(arguments[1])).release().ptr();
    } catch (py::error_already_set& error) {
        error.restore();
    } catch (const std::exception&) {
        py::detail::try_translate_exceptions();  // to what a function made by pybind11 raises
    }
    return nullptr;
}

// A function run(collator, features) that gives the batch, or None; it owns a copy of the recipe.
template <typename Recipe>
py::object runner_of(const Recipe& recipe) {
    static PyMethodDef method = {"run",
                                 reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_of_capsule<Recipe>)),
                                 METH_FASTCALL, "run(collator, features): the batch, or None."};
    auto* const copy = new Recipe(recipe);
    auto capsule = py::reinterpret_steal<py::object>(PyCapsule_New(copy, Recipe::runner_name, [](PyObject* self) {
        delete static_cast<Recipe*>(PyCapsule_GetPointer(self, Recipe::runner_name));
    }));
    if (!capsule) {
        delete copy;
        throw py::error_already_set();
    }
    auto function = py::reinterpret_steal<py::object>(PyCFunction_New(&method, capsule.ptr()));
    if (!function) {
        throw py::error_already_set();
    }
    return function;
}

}  // namespace quadrat
