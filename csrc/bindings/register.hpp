// One function per concept adds it to the module; module.cpp calls them and does nothing else.
#pragma once

#include <pybind11/pybind11.h>

#include "casters.hpp"

namespace quadrat {

using Register = void(py::module_&);

// For what takes long and touches no Python object.
using WithoutGil = py::call_guard<py::gil_scoped_release>;

Register register_allocate, register_arrow, register_batching, register_columns, register_constants, register_gathered,
    register_generator, register_interop, register_kernels, register_labels, register_permutation_mask, register_philox,
    register_recipe, register_table, register_word_labels;

}  // namespace quadrat
