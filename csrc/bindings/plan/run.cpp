// A batch in two calls: its signature, by which Python decides once, and the steps of that decision carried out.
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <utility>

#include "../deferred/defer.hpp"
#include "../input/columns.hpp"
#include "../register.hpp"
#include "../report.hpp"
#include "execute.hpp"

namespace quadrat {
namespace {

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

// Columns for Python to decide about, which takes code of the user's.
py::object seen(std::unique_ptr<Columns> columns, const py::object& interop) {
    columns->look(interop.cast<const Interop&>());
    columns->disturb();
    py::object made = py::cast(std::move(columns));
    py::detail::keep_alive_impl(made, interop);
    return made;
}

// The batch, or where a step fails a tuple (step, code, row, position). deferred: what makes a deferred batch, or None.
py::object run(const Columns& columns, py::tuple steps, py::dict values, const Interop& interop, bool torch,
               std::int64_t width, std::int64_t multiple_of, bool left, py::object separator, std::int64_t start,
               py::object deferred) {
    const Plan plan = parse_plan(std::move(steps), std::move(values));
    const Layout layout = checked({width, multiple_of, left, std::move(separator), start});
    py::object batch;
    std::size_t failed = 0;
    const Status status =
        deferred.is_none()
            ? execute(columns, plan, layout, interop, torch ? Framework::torch : Framework::numpy, &batch, &failed)
            : defer(columns, plan, layout, interop, {std::move(deferred), false}, &batch, &failed);
    if (!status) {
        return py::make_tuple(failed, static_cast<int>(status.code), status.row, status.position);
    }
    return batch;
}

}  // namespace

py::tuple Columns::describe(std::size_t index) const {
    const Column& c = at(index);
    return py::make_tuple(c.forms, c.first_form, c.kinds, c.min_length, c.max_length, c.total);
}

std::string Columns::signature(std::size_t main, std::int64_t width) const {
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
    return result;
}

void register_columns(py::module_& m) {
    py::class_<Columns>(m, "Columns")
        .def(py::init<>())
        .def("__len__", [](const Columns& self) { return self.columns.size(); })
        .def("add_values", &Columns::add_values, py::arg("values"), py::arg("interop"), py::keep_alive<1, 3>())
        .def("add_optional", &Columns::add_optional, py::arg("features"), py::arg("name"), py::arg("interop"),
             py::keep_alive<1, 4>())
        .def("add_ragged", &Columns::add_ragged, py::arg("values"), py::arg("kind"), py::arg("values_size"),
             py::arg("offsets"), py::arg("count"), py::arg("inner"))
        .def("count", &Columns::count, py::arg("index"))
        .def(
            "longest", [](const Columns& self, std::size_t index) { return self.at(index).max_length; },
            py::arg("index"))
        .def("describe", &Columns::describe, py::arg("index"))
        .def(
            "signature",
            [](const Columns& self, std::size_t main, std::int64_t width) {
                return py::bytes(self.signature(main, width));
            },
            py::arg("main"), py::arg("width"))
        .def("run", &run, py::arg("steps"), py::arg("values"), py::arg("interop"), py::arg("torch"), py::arg("width"),
             py::arg("multiple_of") = 1, py::arg("left") = false, py::arg("separator") = py::none(),
             py::arg("start") = 0, py::arg("deferred") = py::none())
        .def("first_difference", &Columns::first_difference, py::arg("a"), py::arg("b"))
        .def("steps_forward", &Columns::steps_forward, py::arg("index"))
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
    m.def(
        "collect",
        [](const py::object& features, const py::object& names, const py::object& interop) -> py::object {
            py::tuple keys;
            auto columns = std::make_unique<Columns>();
            if (!collect_columns(features, names, interop.cast<const Interop&>(), &keys, columns.get())) {
                return py::none();
            }
            return py::make_tuple(keys, seen(std::move(columns), interop));
        },
        py::arg("features"), py::arg("names"), py::arg("interop"));
    m.def(
        "collect_nested",
        [](const py::object& features, const py::tuple& names, const py::object& plain, Py_ssize_t choices,
           const py::object& interop) -> py::object {
            auto columns = std::make_unique<Columns>();
            if (!collect_nested(features, names, plain, choices, interop.cast<const Interop&>(), columns.get())) {
                return py::none();
            }
            return seen(std::move(columns), interop);
        },
        py::arg("features"), py::arg("names"), py::arg("plain"), py::arg("choices"), py::arg("interop"));
}

}  // namespace quadrat
