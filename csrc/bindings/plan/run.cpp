// A batch in two calls: its signature, by which Python decides once, and the steps of that decision carried out.
#include <pybind11/stl.h>

#include <algorithm>

#include "../classes.hpp"
#include "../input/walk.hpp"
#include "execute.hpp"

namespace quadrat {
namespace {

// The batch, or where a step fails a tuple (step, code, row, position).
py::object run(const Columns& columns, py::tuple steps, py::dict values, const Interop& interop, Framework torch,
               const py::tuple& fields) {
    const Plan plan = parse_plan(std::move(steps), std::move(values));
    py::object batch;
    std::size_t failed = 0;
    const Status status = execute(columns, plan, layout_of(fields), interop, torch, &batch, &failed);
    if (!status) {
        return py::make_tuple(failed, static_cast<int>(status.code), status.row, status.position);
    }
    return batch;
}

// Whether rows step forward by whole elements, as torch wants of arrays.
bool steps_forward(const Column& column) {
    return std::all_of(column.rows.begin(), column.rows.end(), [](const Row& row) {
        return row.stride >= 0 && row.stride % static_cast<std::int64_t>(item_size(row.kind)) == 0;
    });
}

}  // namespace

std::string Columns::signature(std::size_t main, std::int64_t width, bool bounded) const {
    const Column& by = at(main);
    std::string result;
    result.reserve(columns.size() * 6);
    for (std::size_t i = 0; i < columns.size(); ++i) {
        const Column& c = columns[i];
        const std::uint32_t lengths =
            (c.min_length == c.max_length ? lengths_equal : 0U) | (c.lengths == by.lengths ? lengths_aligned : 0U) |
            (c.min_length >= width ? lengths_full : 0U) | (c.trailing.empty() ? 0U : lengths_deep) |
            ((c.forms & form_derived) == 0 ? 0U : lengths_derived);
        const std::uint32_t traits = (c.lengths.empty() || c.lengths.front() == 0 ? 0U : trait_starts) |
                                     (c.min_length == 0 ? trait_empty : 0U) |
                                     ((c.forms & form_array) != 0 && !steps_forward(c) ? trait_backward : 0U) |
                                     (bounded && i == main && c.max_length > width ? trait_over : 0U) |
                                     ((c.forms & form_other) != 0 ? c.others : 0U);
        result.push_back(static_cast<char>(c.forms));
        result.push_back(static_cast<char>(c.first_form));
        result.push_back(static_cast<char>(c.kinds & 0xFFU));
        result.push_back(static_cast<char>(c.kinds >> 8U));
        result.push_back(static_cast<char>(lengths));
        result.push_back(static_cast<char>(traits));
    }
    return result;
}

void register_columns(py::module_& m) {
    bind_class<Columns>(m, "Columns")
        .def(py::init<>())
        .def("__len__", [](const Columns& self) { return self.columns.size(); })
        .def("add_values", &Columns::add_values, "values"_a, "interop"_a)
        .def("add_ragged", &Columns::add_ragged, "values"_a, "kind"_a, "values_size"_a, "offsets"_a, "count"_a,
             "trailing"_a = py::tuple())
        .def("cut", &Columns::cut, "index"_a, "starts"_a, "lengths"_a)
        .def("count", &Columns::count, "index"_a)
        .def(
            "describe",
            [](const Columns& self, std::size_t index) {
                const Column& c = self.at(index);
                return py::make_tuple(c.forms, c.first_form, c.kinds, c.min_length, c.max_length, c.total);
            },
            "index"_a)
        .def(
            "trailing",
            [](const Columns& self, std::size_t index) { return py::tuple(py::cast(self.at(index).trailing)); },
            "index"_a)
        .def(
            "signature",
            [](const Columns& self, std::size_t main, std::int64_t width) {
                return py::bytes(self.signature(main, width, false));
            },
            "main"_a, "width"_a)
        .def("run", &run, "steps"_a, "values"_a, "interop"_a, "torch"_a, "layout"_a)
        .def("first_difference", &Columns::first_difference, "a"_a, "b"_a)
        .def("pad", &Columns::pad, "index"_a, "out"_a, "kind"_a, "width"_a, "left"_a, "value"_a)
        .def("flatten", &Columns::flatten, "index"_a, "out"_a, "kind"_a, "out_size"_a)
        .def("attention_mask", &Columns::attention_mask, "index"_a, "out"_a, "kind"_a, "width"_a, "left"_a)
        .def(
            "lengths",
            [](const Columns& self, std::size_t index, Address out) {
                const std::vector<std::int64_t>& lengths = self.at(index).lengths;
                std::copy(lengths.begin(), lengths.end(), static_cast<std::int64_t*>(out));
            },
            "index"_a, "out"_a);
    m.def(
        "collect",
        [](const py::object& features, const py::object& names, const py::object& interop) -> py::object {
            py::tuple keys;
            auto columns = std::make_unique<Columns>();
            if (!collect_columns(features, names, interop.cast<const Interop&>(), &keys, columns.get())) {
                return py::none();
            }
            columns->keep_alive(interop);
            columns->look(interop.cast<const Interop&>());
            columns->invalidate();  // Python decides about them, which takes code of the user's
            return py::make_tuple(keys, py::cast(std::move(columns)));
        },
        "features"_a, "names"_a, "interop"_a);
    m.def(
        "dict_of",
        [](py::object feature, const py::object& interop) -> py::object {
            const py::object dict = PlainDicts(interop.cast<const Interop&>()).dict_of(std::move(feature));
            return dict ? dict : py::object(py::none());
        },
        "feature"_a, "interop"_a);
}

}  // namespace quadrat
