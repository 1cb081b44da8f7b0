// A batch in two calls: its signature, by which Python decides once, and the steps of that decision carried out.
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <utility>

#include "columns.hpp"
#include "labels.hpp"
#include "register.hpp"
#include "report.hpp"

namespace quadrat {
namespace {

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

const Labels& labels_of(const py::dict& values, const py::object& name) {
    return py::object(values[name]).cast<const Labels&>();
}

// The step whose labels come from the ids of an earlier one, or null.
const Step* labels_step(const std::vector<Step>& steps) {
    const auto found =
        std::find_if(steps.begin(), steps.end(), [](const Step& step) { return step.action == Action::labels; });
    return found == steps.end() ? nullptr : &*found;
}

// Whether the step writes the ids that labels come from.
bool makes_ids(const Step& step, const Step* labels) {
    return labels != nullptr && step.index == labels->index && step.kind == Kind::int64 &&
           (step.action == Action::pad || step.action == Action::stack);
}

void expect_outputs(const Columns& columns, const std::vector<Step>& steps, const Shape& shape, BatchMemory* memory) {
    const Step* const labels = labels_step(steps);
    std::int64_t ids_width = 0;
    for (const Step& step : steps) {
        if (step.action != Action::hold) {
            Output output = columns.output(step, shape, ids_width);
            ids_width = makes_ids(step, labels) ? output.shape.back() : ids_width;
            memory->expect(std::move(output));
        }
    }
}

// Columns for Python to decide about, which takes code of the user's.
py::object seen(std::unique_ptr<Columns> columns, const py::object& interop) {
    columns->look(interop.cast<const Interop&>());
    columns->disturb();
    py::object made = py::cast(std::move(columns));
    py::detail::keep_alive_impl(made, interop);
    return made;
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

std::vector<Step> parse_steps(const py::tuple& steps) {
    std::vector<Step> result;
    result.reserve(steps.size());
    for (const py::handle item : steps) {
        const auto step = py::reinterpret_borrow<py::tuple>(item);
        const int action = step[2].cast<int>();
        if (action < 0 || action > static_cast<int>(Action::labels)) {
            throw py::value_error("no action has the number " + std::to_string(action));
        }
        result.push_back({step[0], step[1].cast<std::size_t>(), static_cast<Action>(action), step[3].cast<Kind>()});
    }
    return result;
}

Output Columns::output(const Step& step, const Shape& shape, std::int64_t ids_width) const {
    std::vector<std::int64_t> extents;
    extents.reserve(2);
    extents.push_back(count(step.index));
    if (step.action == Action::labels) {
        extents.push_back(ids_width);
    } else if (step.action == Action::pad || step.action == Action::mask) {
        extents.push_back(shape.width);
    } else if (step.action == Action::stack) {
        extents.push_back(at(step.index).max_length);
    } else if (step.action == Action::pad_own) {
        const std::int64_t multiple = std::max<std::int64_t>(shape.multiple_of, 1);
        extents.push_back((at(step.index).max_length + multiple - 1) / multiple * multiple);
    }
    return {std::move(extents), step.kind};
}

Status Columns::run(const std::vector<Step>& steps, const py::dict& values, const Interop& interop, Framework framework,
                    const Shape& batch_shape, py::dict* batch, std::size_t* failed) const {
    BatchMemory memory(interop, framework);
    if (memory.shares()) {
        expect_outputs(*this, steps, batch_shape, &memory);
    }
    const Step* const labels = labels_step(steps);
    BatchIds ids{};  // of the column that labels come from
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const auto& [name, index, action, kind] = steps[i];
        if (action == Action::hold) {
            (*batch)[name] = py::none();
            continue;
        }
        Output output = this->output(steps[i], batch_shape, ids.width);
        const std::int64_t extent = output.shape.back();
        Allocation out = memory.take(std::move(output));
        Status status;
        if (action == Action::labels) {
            ids.labels = static_cast<std::int64_t*>(out.data);
            disturb();  // generators, and columns that only labels look at, may be anything
            status = ids.ids == nullptr ? Status{Code::bad_argument} : labels_of(values, name).write(*this, ids);
        } else if (action == Action::numbers) {
            status = numbers(index, out.data, kind);
        } else if (action == Action::mask) {
            status = attention_mask(index, out.data, kind, extent, batch_shape.left);
        } else {
            const py::handle value = PyDict_GetItemWithError(values.ptr(), name.ptr());
            status = pad(index, out.data, kind, extent, batch_shape.left, value);
        }
        if (!status) {
            *failed = i;
            return status;
        }
        if (makes_ids(steps[i], labels)) {
            const auto form = batch_shape.left ? BatchIds::Form::left : BatchIds::Form::right;
            ids = {index, count(index), extent, form, static_cast<std::int64_t*>(out.data), nullptr};
        }
        (*batch)[name] = std::move(out.array);
    }
    return {};
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
        .def(
            "run",
            [](const Columns& self, const py::tuple& steps, const py::dict& values, const Interop& interop, bool torch,
               std::int64_t width, std::int64_t multiple_of, bool left) -> py::object {
                py::dict batch;
                std::size_t failed = 0;
                const Status status =
                    self.run(parse_steps(steps), values, interop, torch ? Framework::torch : Framework::numpy,
                             {width, multiple_of, left}, &batch, &failed);
                if (!status) {
                    return py::make_tuple(failed, static_cast<int>(status.code), status.row, status.position);
                }
                return std::move(batch);
            },
            py::arg("steps"), py::arg("values"), py::arg("interop"), py::arg("torch"), py::arg("width"),
            py::arg("multiple_of"), py::arg("left"))
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
