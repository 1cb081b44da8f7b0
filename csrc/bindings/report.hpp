// What Python is told of a kernel's status: None, or the code and the place it speaks of.
#pragma once

#include <pybind11/pybind11.h>

#include "../kernels/status.hpp"

namespace quadrat {

inline pybind11::object report(const Status& status) {
    if (status) {
        return pybind11::none();
    }
    return pybind11::make_tuple(static_cast<int>(status.code), status.row, status.position);
}

}  // namespace quadrat
