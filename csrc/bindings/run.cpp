// A batch in two calls: its signature, by which Python decides once, and the steps of that decision carried out.
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <utility>

#include "columns.hpp"
#include "register.hpp"

namespace quadrat {
namespace {

py::object report(const Status& status) {
    if (status) {
        return py::none();
    }
    return py::make_tuple(static_cast<int>(status.code), status.row, status.position);
}

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

py::tuple Columns::describe(std::size_t index) const {
    const Column& c = at(index);
    return py::make_tuple(c.forms, c.first_form, c.kinds, c.min_length, c.max_length, c.total);
}

py::bytes Columns::signature(std::size_t main, std::int64_t width) const {
    const Column& by = at(main);
    std::string result;
    result.reserve(columns.size() * 5);
    for (const Column& c : columns) {
        const bool equal = c.min_length == c.max_length;
        const bool aligned = c.lengths == by.lengths;
        const bool full = c.min_length >= width;
        result.push_back(static_cast<char>(c.forms));
        result.push_back(static_cast<char>(c.first_form));
        result.push_back(static_cast<char>(c.kinds & 0xFFU));
        result.push_back(static_cast<char>(c.kinds >> 8U));
        result.push_back(static_cast<char>((equal ? 1 : 0) | (aligned ? 2 : 0) | (full ? 4 : 0)));
    }
    return py::bytes(result);
}

py::object Columns::run(const py::tuple& steps, const py::dict& values, const Interop& interop, Framework framework,
                        const Shape& batch) const {
    py::dict result;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const auto step = py::reinterpret_borrow<py::tuple>(PyTuple_GET_ITEM(steps.ptr(), static_cast<Py_ssize_t>(i)));
        const py::object name = step[0];
        const auto index = step[1].cast<std::size_t>();
        const auto action = static_cast<Action>(step[2].cast<int>());
        if (action == Action::hold) {
            result[name] = py::none();
            continue;
        }
        const auto kind = step[3].cast<Kind>();
        std::vector<std::int64_t> shape{count(index)};
        if (action == Action::pad || action == Action::mask) {
            shape.push_back(batch.width);
        } else if (action == Action::stack) {
            shape.push_back(at(index).max_length);
        } else if (action == Action::pad_own) {
            const std::int64_t multiple = std::max<std::int64_t>(batch.multiple_of, 1);
            shape.push_back((at(index).max_length + multiple - 1) / multiple * multiple);
        }
        const std::int64_t extent = shape.back();
        Allocation out = allocate(interop, framework, std::move(shape), kind);
        Status status;
        if (action == Action::numbers) {
            status = numbers(index, out.data, kind);
        } else if (action == Action::mask) {
            status = attention_mask(index, out.data, kind, extent, batch.left);
        } else {
            status = pad(index, out.data, kind, extent, batch.left, PyDict_GetItemWithError(values.ptr(), name.ptr()));
        }
        if (!status) {
            return py::make_tuple(i, static_cast<int>(status.code), status.row, status.position);
        }
        result[name] = std::move(out.array);
    }
    return std::move(result);
}

void register_columns(py::module_& m) {
    py::class_<Columns>(m, "Columns")
        .def(py::init<>())
        .def("__len__", [](const Columns& self) { return self.columns.size(); })
        .def("add_values", &Columns::add_values, py::arg("values"), py::arg("interop"))
        .def("add_ragged", &Columns::add_ragged, py::arg("values"), py::arg("kind"), py::arg("values_size"),
             py::arg("offsets"), py::arg("count"), py::arg("inner"))
        .def("count", &Columns::count, py::arg("index"))
        .def("longest", [](const Columns& self, std::size_t index) { return self.at(index).max_length; },
             py::arg("index"))
        .def("describe", &Columns::describe, py::arg("index"))
        .def("signature", &Columns::signature, py::arg("main"), py::arg("width"))
        .def(
            "run",
            [](const Columns& self, const py::tuple& steps, const py::dict& values, const Interop& interop, bool torch,
               std::int64_t width, std::int64_t multiple_of, bool left) {
                return self.run(steps, values, interop, torch ? Framework::torch : Framework::numpy,
                                {width, multiple_of, left});
            },
            py::arg("steps"), py::arg("values"), py::arg("interop"), py::arg("torch"), py::arg("width"),
            py::arg("multiple_of"), py::arg("left"))
        .def("first_difference", &Columns::first_difference, py::arg("a"), py::arg("b"))
        .def(
            "pad",
            [](const Columns& self, std::size_t index, std::uintptr_t out, Kind kind, std::int64_t width, bool left,
               const py::object& value) { return report(self.pad(index, pointer(out), kind, width, left, value)); },
            py::arg("index"), py::arg("out"), py::arg("kind"), py::arg("width"), py::arg("left"), py::arg("value"))
        .def(
            "flatten",
            [](const Columns& self, std::size_t index, std::uintptr_t out, Kind kind, std::int64_t out_size) {
                return report(self.flatten(index, pointer(out), kind, out_size));
            },
            py::arg("index"), py::arg("out"), py::arg("kind"), py::arg("out_size"))
        .def(
            "attention_mask",
            [](const Columns& self, std::size_t index, std::uintptr_t out, Kind kind, std::int64_t width, bool left) {
                return report(self.attention_mask(index, pointer(out), kind, width, left));
            },
            py::arg("index"), py::arg("out"), py::arg("kind"), py::arg("width"), py::arg("left"))
        .def("lengths", &Columns::lengths, py::arg("index"), py::arg("out"));
    m.def("collect", &collect, py::arg("features"), py::arg("names"), py::arg("interop"));
}

}  // namespace quadrat
