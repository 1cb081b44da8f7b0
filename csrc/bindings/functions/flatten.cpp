// The kernels of flat batches, one by one: for outputs that are no batch.
#include <pybind11/pybind11.h>

#include "../../kernels/cu_seqlens.hpp"
#include "../../kernels/position_ids.hpp"
#include "../../kernels/separate_rows.hpp"
#include "../../kernels/seq_idx.hpp"
#include "../input/decode.hpp"
#include "../plan/execute.hpp"
#include "../register.hpp"
#include "../report.hpp"

namespace quadrat {

namespace {

Span<const std::int64_t> span_at(std::uintptr_t address, std::int64_t size) {
    if (size < 0) {
        throw py::value_error("a size is negative");
    }
    return {reinterpret_cast<const std::int64_t*>(address), size};
}

}  // namespace

void register_flatten(py::module_& m) {
    m.def(
        "position_ids",
        [](std::uintptr_t lengths, std::int64_t rows, std::int64_t start, std::uintptr_t out, std::int64_t out_size) {
            return report(position_ids(span_at(lengths, rows), start, reinterpret_cast<std::int64_t*>(out), out_size));
        },
        py::arg("lengths"), py::arg("rows"), py::arg("start"), py::arg("out"), py::arg("out_size"));
    m.def(
        "seq_idx",
        [](std::uintptr_t lengths, std::int64_t rows, std::uintptr_t out, std::int64_t out_size) {
            return report(seq_idx(span_at(lengths, rows), reinterpret_cast<std::int32_t*>(out), out_size));
        },
        py::arg("lengths"), py::arg("rows"), py::arg("out"), py::arg("out_size"));
    m.def(
        "cu_seqlens",
        [](std::uintptr_t lengths, std::int64_t rows, Kind kind, std::uintptr_t out) {
            return report(cu_seqlens(span_at(lengths, rows), kind, reinterpret_cast<void*>(out)));
        },
        py::arg("lengths"), py::arg("rows"), py::arg("kind"), py::arg("out"));
    m.def(
        "separate_rows",
        [](std::uintptr_t start, std::int64_t rows, Kind kind, const py::object& value, std::uintptr_t out,
           std::int64_t out_size) {
            std::uint64_t element = 0;
            if (!decode_number(value.ptr(), kind, &element)) {
                return report({Code::out_of_range});
            }
            return report(separate_rows(span_at(start, rows), kind, &element, reinterpret_cast<void*>(out), out_size));
        },
        py::arg("start"), py::arg("rows"), py::arg("kind"), py::arg("value"), py::arg("out"), py::arg("out_size"));
    m.def(
        "fill_tail",
        [](std::uintptr_t out, Kind kind, std::int64_t filled, std::int64_t out_size, const py::object& value) {
            return report(fill_tail(reinterpret_cast<void*>(out), kind, filled, out_size, value));
        },
        py::arg("out"), py::arg("kind"), py::arg("filled"), py::arg("out_size"), py::arg("value"));
}

}  // namespace quadrat
