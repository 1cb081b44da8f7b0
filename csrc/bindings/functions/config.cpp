// What this build is: for quadrat.show_config().
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <string>

#include "../../kernels/kind.hpp"
#include "../../kernels/simd.hpp"
#include "../register.hpp"

namespace quadrat {

void register_config(py::module_& m) {
    m.attr("__version__") = QUADRAT_VERSION;
    py::list kinds;
    for (const char* name : kind_names) {
        kinds.append(name);
    }
    m.attr("kinds") = py::tuple(kinds);
    m.def("simd_level", &simd_level);
    m.def("compiler", [] {
#if defined(__clang__)
        return std::string("clang ") + __clang_version__;
#elif defined(__GNUC__)
        return std::string("gcc ") + __VERSION__;
#elif defined(_MSC_VER)
        return "msvc " + std::to_string(_MSC_VER);
#else
        return std::string("unknown");
#endif
    });
    m.def(
        "address", [](const py::array& array) { return reinterpret_cast<std::uintptr_t>(array.data()); },
        py::arg("array"));
}

}  // namespace quadrat
