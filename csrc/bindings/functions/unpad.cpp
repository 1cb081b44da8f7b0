// The way back from padding.
#include "../../kernels/unpad.hpp"

#include <cstdint>

#include "../../kernels/unpad_masked.hpp"
#include "../register.hpp"
#include "../report.hpp"

namespace quadrat {

void register_unpad(py::module_& m) {
    m.def(
        "unpad",
        [](std::uintptr_t padded, std::int64_t width, bool left, std::uintptr_t offsets, std::int64_t rows,
           std::size_t token, std::uintptr_t out, std::int64_t out_size) {
            const Span<const std::int64_t> bounds{reinterpret_cast<const std::int64_t*>(offsets), rows + 1};
            Status status;
            {
                const py::gil_scoped_release release;  // a long copy between raw pointers
                status = unpad(reinterpret_cast<const void*>(padded), width, left ? Side::left : Side::right, bounds,
                               token, reinterpret_cast<void*>(out), out_size);
            }
            return report(status);
        },
        py::arg("padded"), py::arg("width"), py::arg("left"), py::arg("offsets"), py::arg("rows"), py::arg("token"),
        py::arg("out"), py::arg("out_size"));
    m.def(
        "count_masked",
        [](std::uintptr_t mask, std::int64_t width, std::uintptr_t offsets, std::int64_t rows) {
            const Span<std::int64_t> bounds{reinterpret_cast<std::int64_t*>(offsets), rows + 1};
            const py::gil_scoped_release release;  // reads all of a mask
            return static_cast<bool>(count_masked(reinterpret_cast<const std::uint8_t*>(mask), width, bounds));
        },
        py::arg("mask"), py::arg("width"), py::arg("offsets"), py::arg("rows"));
    m.def(
        "unpad_masked",
        [](std::uintptr_t padded, std::uintptr_t mask, std::int64_t width, std::size_t token, std::uintptr_t offsets,
           std::int64_t rows, std::uintptr_t out) {
            const Span<const std::int64_t> bounds{reinterpret_cast<const std::int64_t*>(offsets), rows + 1};
            Status status;
            {
                const py::gil_scoped_release release;  // a long copy between raw pointers
                status =
                    unpad_masked(reinterpret_cast<const void*>(padded), reinterpret_cast<const std::uint8_t*>(mask),
                                 width, token, bounds, reinterpret_cast<void*>(out));
            }
            return report(status);
        },
        py::arg("padded"), py::arg("mask"), py::arg("width"), py::arg("token"), py::arg("offsets"), py::arg("rows"),
        py::arg("out"));
}

}  // namespace quadrat
