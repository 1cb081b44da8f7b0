// Whether rows lie within their values: asked before anything reads at their addresses.
#include <cstdint>

#include "../../kernels/check_offsets.hpp"
#include "../register.hpp"
#include "../report.hpp"

namespace quadrat {

void register_offsets(py::module_& m) {
    m.def(
        "check_offsets",
        [](std::uintptr_t offsets, std::int64_t count, std::int64_t size) {
            LongestRow longest;
            const Status status =
                check_offsets({reinterpret_cast<const std::int64_t*>(offsets), count}, size, &longest);
            return py::make_tuple(report(status), longest.row, longest.length);
        },
        py::arg("offsets"), py::arg("count"), py::arg("size"));
}

}  // namespace quadrat
