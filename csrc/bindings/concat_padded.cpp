// Gathering: memory that batches are appended to, and that becomes the array of all of them.
#include "../kernels/concat_padded.hpp"

#include <pybind11/numpy.h>

#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "../kernels/bytes.hpp"
#include "../memory/growing.hpp"
#include "register.hpp"
#include "report.hpp"

namespace quadrat {
namespace {

using memory::Growing;

std::uintptr_t extend(Growing& self, std::size_t bytes) {
    const std::size_t at = self.size();
    if (!self.extend(bytes)) {
        throw std::bad_alloc();
    }
    return reinterpret_cast<std::uintptr_t>(self.data() + at);
}

void append(Growing& self, std::uintptr_t address, std::size_t bytes) {
    // The GIL is kept: another thread that appends to the same memory may move it.
    char* const target = reinterpret_cast<char*>(extend(self, bytes));
    copy_bytes(target, reinterpret_cast<const void*>(address), bytes);
}

// The memory as an array of bytes that owns it; nothing is left here.
py::array release(Growing& self) {
    auto owner = std::make_unique<Growing>(std::move(self));
    owner->fit();
    void* const data = owner->data();
    const auto size = static_cast<py::ssize_t>(owner->size());
    const py::capsule base(owner.get(), [](void* held) { delete static_cast<Growing*>(held); });
    static_cast<void>(owner.release());
    return py::array(py::dtype::of<std::uint8_t>(), size, data, base);
}

// Bytes of the memory, as an array to write to. It is void once the memory grows, and keeps it alive until then.
py::array view(const py::object& self, std::size_t at, std::size_t bytes) {
    const Growing& memory = self.cast<const Growing&>();
    if (at > memory.size() || bytes > memory.size() - at) {
        throw py::index_error("the memory is not as large");
    }
    return py::array(py::dtype::of<std::uint8_t>(), static_cast<py::ssize_t>(bytes), memory.data() + at, self);
}

}  // namespace

void register_concat_padded(py::module_& m) {
    py::class_<Growing>(m, "Growing")
        .def(py::init<>())
        .def("__len__", &Growing::size)
        .def_property_readonly("address",
                               [](const Growing& self) { return reinterpret_cast<std::uintptr_t>(self.data()); })
        .def("extend", &extend, py::arg("bytes"))
        .def("append", &append, py::arg("address"), py::arg("bytes"))
        .def("view", &view, py::arg("at"), py::arg("bytes"))
        .def("release", &release);
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
