#include <cstring>
#include <exception>
#include <stdexcept>

#include "classes.hpp"

namespace {

// Where Python has no memory, pybind11 throws a runtime_error that says so, with or without Python's own error.
void keep_memory_error(std::exception_ptr error) {
    try {
        std::rethrow_exception(std::move(error));
    } catch (const std::runtime_error& failure) {
        if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_MemoryError) != 0) {
            return;
        }
        if (std::strncmp(failure.what(), "Could not allocate", 18) != 0) {
            throw;
        }
        PyErr_Clear();
        PyErr_NoMemory();
    }
}

}  // namespace

PYBIND11_MODULE(_core, m, pybind11::mod_gil_not_used()) {
    m.doc() = "quadrat's compiled kernels. Raw addresses in, nothing owned: quadrat.support.memory keeps them valid.";
    using namespace quadrat;
    translate_own_exceptions();
    pybind11::register_local_exception_translator(keep_memory_error);
    for (Register* const add :
         {register_constants, register_interop, register_allocate, register_flat_column, register_arrow, register_table,
          register_columns, register_generator, register_kernels, register_labels, register_recipe}) {
        add(m);
    }
}
