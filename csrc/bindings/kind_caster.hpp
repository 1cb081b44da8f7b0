// Kinds cross the border as their number, checked on the way in.
#pragma once

#include <pybind11/pybind11.h>

#include "../kernels/kind.hpp"

namespace pybind11::detail {

template <>
struct type_caster<quadrat::Kind> {
    PYBIND11_TYPE_CASTER(quadrat::Kind, const_name("int"));

    bool load(handle source, bool) {
        if (PyLong_CheckExact(source.ptr()) == 0) {
            return false;
        }
        int overflow = 0;
        const long number = PyLong_AsLongAndOverflow(source.ptr(), &overflow);
        if (number < 0 || number >= quadrat::kind_count) {
            return false;
        }
        value = static_cast<quadrat::Kind>(number);
        return true;
    }

    static handle cast(quadrat::Kind kind, return_value_policy, handle) {
        return PyLong_FromLong(static_cast<long>(kind));
    }
};

}  // namespace pybind11::detail
