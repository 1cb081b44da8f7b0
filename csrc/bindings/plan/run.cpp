// A batch in two calls: its signature, by which Python decides once, and the steps of that decision carried out.
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <utility>

#include "../../kernels/attention_mask.hpp"
#include "../classes.hpp"
#include "../deferred/defer.hpp"
#include "../input/columns.hpp"
#include "../register.hpp"
#include "execute.hpp"

namespace quadrat {
namespace {

// Columns for Python to decide about, which takes code of the user's.
py::object seen(std::unique_ptr<Columns> columns, const py::object& interop) {
    columns->keep_alive(interop);
    columns->look(interop.cast<const Interop&>());
    columns->disturb();
    return py::cast(std::move(columns));
}

// The batch, or where a step fails a tuple (step, code, row, position). deferred: what makes a deferred batch, or None.
py::object run(const Columns& columns, py::tuple steps, py::dict values, const Interop& interop, Framework torch,
               std::int64_t width, std::int64_t multiple_of, Side left, py::object separator, std::int64_t start,
               std::int64_t align_to, std::int64_t total, bool counts_on, std::int64_t choices, py::object deferred) {
    const Plan plan = parse_plan(std::move(steps), std::move(values));
    const Layout layout =
        checked({width, multiple_of, left, std::move(separator), start, align_to, total, counts_on, choices});
    py::object batch;
    std::size_t failed = 0;
    const Status status = deferred.is_none()
                              ? execute(columns, plan, layout, interop, torch, &batch, &failed)
                              : defer(columns, plan, layout, interop, {std::move(deferred), false}, &batch, &failed);
    if (!status) {
        return py::make_tuple(failed, static_cast<int>(status.code), status.row, status.position);
    }
    return batch;
}

// The rows of all columns, one column after the other, padded on the right: torch tensors of ids and of their attention
// mask. With `prompts` the first column's rows come before those of each other, and a third tensor marks the latter.
// None where a row is longer than `limit`, or is not made of int64.
py::object pad_stacked(const Columns& columns, bool prompts, const Interop& interop, std::int64_t limit,
                       std::int64_t multiple_of, const py::object& value) {
    const std::size_t first = prompts ? 1 : 0;
    const std::vector<std::int64_t>& before = columns.at(0).lengths;
    std::vector<std::int64_t> lengths;
    for (std::size_t part = first; part < columns.columns.size(); ++part) {
        const std::vector<std::int64_t>& own = columns.at(part).lengths;
        for (std::size_t i = 0; i < own.size(); ++i) {
            lengths.push_back(own[i] + (prompts ? before.at(i) : 0));
        }
    }
    const auto count = static_cast<std::int64_t>(lengths.size());
    const std::int64_t longest = count == 0 ? 0 : *std::max_element(lengths.begin(), lengths.end());
    if (longest > limit) {
        return py::none();
    }
    const std::int64_t width = round_up(longest, checked({0, multiple_of, Side::right, py::none(), 0}).multiple_of);
    const Output output{{count, width}, Kind::int64};
    BatchMemory memory(interop, Framework::torch);
    for (std::size_t i = 0; i < first + 2 && memory.shares(); ++i) {
        memory.expect(output);
    }
    Allocation ids = memory.take(output), mask = memory.take(output);
    Status status = attention_mask({lengths.data(), count}, width, Side::right, Kind::int64, mask.data);
    auto* out = static_cast<std::int64_t*>(ids.data);
    for (std::size_t part = first; part < columns.columns.size() && status; ++part) {
        status = prompts ? columns.pad_joined(0, part, out, Kind::int64, width, value)
                         : columns.pad(part, out, Kind::int64, width, Side::right, value);
        out += columns.count(part) * width;
    }
    if (!status) {
        return py::none();
    }
    if (!prompts) {
        return py::make_tuple(ids.array, mask.array);
    }
    Allocation marks = memory.take(output);
    std::copy_n(static_cast<const std::int64_t*>(mask.data), count * width, static_cast<std::int64_t*>(marks.data));
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t prompt = before[static_cast<std::size_t>(i) % before.size()];
        std::fill_n(static_cast<std::int64_t*>(marks.data) + i * width, prompt, 0);
    }
    return py::make_tuple(ids.array, mask.array, marks.array);
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
        const std::uint32_t lengths = (c.min_length == c.max_length ? lengths_equal : 0U) |
                                      (c.lengths == by.lengths ? lengths_aligned : 0U) |
                                      (c.min_length >= width ? lengths_full : 0U);
        result.push_back(static_cast<char>(c.forms));
        result.push_back(static_cast<char>(c.first_form));
        result.push_back(static_cast<char>(c.kinds & 0xFFU));
        result.push_back(static_cast<char>(c.kinds >> 8U));
        result.push_back(static_cast<char>(lengths));
    }
    return result;
}

void register_columns(py::module_& m) {
    bind_class<Columns>(m, "Columns")
        .def(py::init<>())
        .def("__len__", [](const Columns& self) { return self.columns.size(); })
        .def(
            "add_values",
            [](Columns& self, const py::object& values, const py::object& interop) {
                self.keep_alive(interop);
                self.add_values(values, interop.cast<const Interop&>());
            },
            "values"_a, "interop"_a)
        .def(
            "add_optional",
            [](Columns& self, const py::object& features, const py::object& name, const py::object& interop) {
                self.keep_alive(interop);
                return self.add_optional(features, name, interop.cast<const Interop&>());
            },
            "features"_a, "name"_a, "interop"_a)
        .def("add_ragged", &Columns::add_ragged, "values"_a, "kind"_a, "values_size"_a, "offsets"_a, "count"_a,
             "inner"_a)
        .def(
            "cut",
            [](Columns& self, std::size_t index, Address starts, Address lengths) {
                const std::int64_t count = self.count(index);
                self.cut(index, {starts, count}, {lengths, count});
            },
            "index"_a, "starts"_a, "lengths"_a)
        .def("count", &Columns::count, "index"_a)
        .def(
            "longest", [](const Columns& self, std::size_t index) { return self.at(index).max_length; }, "index"_a)
        .def("describe", &Columns::describe, "index"_a)
        .def(
            "signature",
            [](const Columns& self, std::size_t main, std::int64_t width) {
                return py::bytes(self.signature(main, width));
            },
            "main"_a, "width"_a)
        .def("run", &run, "steps"_a, "values"_a, "interop"_a, "torch"_a, "width"_a, "multiple_of"_a = 1,
             "left"_a = Side::right, "separator"_a = py::none(), "start"_a = 0, "align_to"_a = 0, "total"_a = 0,
             "counts_on"_a = true, "choices"_a = 0, "deferred"_a = py::none())
        .def("first_difference", &Columns::first_difference, "a"_a, "b"_a)
        .def("steps_forward", &Columns::steps_forward, "index"_a)
        .def(
            "pad",
            [](const Columns& self, std::size_t index, Address out, Kind kind, std::int64_t width, Side left,
               const py::object& value) { return self.pad(index, out, kind, width, left, value); },
            "index"_a, "out"_a, "kind"_a, "width"_a, "left"_a, "value"_a)
        .def(
            "place",
            [](const Columns& self, std::size_t index, Address start, Address out, Kind kind, std::int64_t out_size) {
                return self.place(index, {start, self.count(index)}, out, kind, out_size);
            },
            "index"_a, "start"_a, "out"_a, "kind"_a, "out_size"_a)
        .def("pad_stacked", &pad_stacked, "prompts"_a, "interop"_a, "limit"_a, "multiple_of"_a, "value"_a)
        .def(
            "flatten",
            [](const Columns& self, std::size_t index, Address out, Kind kind, std::int64_t out_size) {
                return self.flatten(index, out, kind, out_size);
            },
            "index"_a, "out"_a, "kind"_a, "out_size"_a)
        .def(
            "attention_mask",
            [](const Columns& self, std::size_t index, Address out, Kind kind, std::int64_t width, Side left) {
                return self.attention_mask(index, out, kind, width, left);
            },
            "index"_a, "out"_a, "kind"_a, "width"_a, "left"_a)
        .def("lengths", &Columns::lengths, "index"_a, "out"_a);
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
        "features"_a, "names"_a, "interop"_a);
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
        "features"_a, "names"_a, "plain"_a, "choices"_a, "interop"_a);
}

}  // namespace quadrat
