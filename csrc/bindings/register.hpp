// One register function per concept; module.cpp calls them and does nothing else.
#pragma once

#include <pybind11/pybind11.h>

namespace quadrat {

namespace py = pybind11;

void register_allocate(py::module_& m);
void register_arrow(py::module_& m);
void register_columns(py::module_& m);
void register_concat_padded(py::module_& m);
void register_config(py::module_& m);
void register_constants(py::module_& m);
void register_flatten(py::module_& m);
void register_gathered(py::module_& m);
void register_generator(py::module_& m);
void register_guard(py::module_& m);
void register_interop(py::module_& m);
void register_labels(py::module_& m);
void register_offsets(py::module_& m);
void register_permutation_mask(py::module_& m);
void register_philox(py::module_& m);
void register_recipe(py::module_& m);
void register_table(py::module_& m);
void register_unpad(py::module_& m);
void register_word_labels(py::module_& m);

}  // namespace quadrat
