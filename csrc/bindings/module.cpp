#include "register.hpp"

PYBIND11_MODULE(_core, m, pybind11::mod_gil_not_used()) {
    m.doc() =
        "quadrat's compiled kernels. Raw addresses in, nothing owned: python/quadrat/support/memory.py keeps them valid.";
    quadrat::register_config(m);
    quadrat::register_constants(m);
    quadrat::register_interop(m);
    quadrat::register_allocate(m);
    quadrat::register_arrow(m);
    quadrat::register_table(m);
    quadrat::register_columns(m);
    quadrat::register_concat_padded(m);
    quadrat::register_flatten(m);
    quadrat::register_gathered(m);
    quadrat::register_generator(m);
    quadrat::register_guard(m);
    quadrat::register_labels(m);
    quadrat::register_offsets(m);
    quadrat::register_permutation_mask(m);
    quadrat::register_philox(m);
    quadrat::register_recipe(m);
    quadrat::register_unpad(m);
    quadrat::register_word_labels(m);
}
