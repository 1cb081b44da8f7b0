// Batches of different widths, as one array.
#include "../../kernels/concat_padded.hpp"

#include <cstdint>
#include <string_view>

#include "../register.hpp"
#include "../report.hpp"

namespace quadrat {

void register_concat_padded(py::module_& m) {
    m.def(
        "concat_padded",
        [](std::uintptr_t blocks, std::int64_t count, std::int64_t width, std::size_t token, const py::bytes& fill,
           std::uintptr_t out, std::int64_t rows) {
            const Span<const Block> all{reinterpret_cast<const Block*>(blocks), count};
            const std::string_view item = fill;
            Status status;
            {
                const py::gil_scoped_release release;  // a long copy between raw pointers
                status = concat_padded(all, width, token, item.data(), item.size(), reinterpret_cast<void*>(out), rows);
            }
            return report(status);
        },
        py::arg("blocks"), py::arg("count"), py::arg("width"), py::arg("token"), py::arg("fill"), py::arg("out"),
        py::arg("rows"));
}

}  // namespace quadrat
