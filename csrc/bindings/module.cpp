#include "register.hpp"

PYBIND11_MODULE(_core, m) {
    m.doc() = "quadrat's compiled kernels. Raw addresses in, nothing owned: quadrat.support.memory keeps them valid.";
    using namespace quadrat;
    for (Register* const add :
         {register_constants, register_interop, register_allocate, register_arrow, register_batching, register_table,
          register_columns, register_gathered, register_generator, register_guard, register_kernels, register_labels,
          register_permutation_mask, register_philox, register_recipe, register_samplers, register_word_labels}) {
        add(m);
    }
}
