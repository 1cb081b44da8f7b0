#include "recipe.hpp"

#include <algorithm>
#include <utility>

#include "register.hpp"
#include "runner.hpp"

namespace quadrat {
namespace {

constexpr std::size_t most_decisions = 32;  // searched one by one; a data set needs a handful

// Of names that are no plain strings, a comparison is the user's code: they are the same where they are one object.
bool same_names(const py::tuple& a, const py::tuple& b) {
    if (a.size() != b.size()) {
        return false;
    }
    for (Py_ssize_t i = 0; i < static_cast<Py_ssize_t>(a.size()); ++i) {
        PyObject *const one = PyTuple_GET_ITEM(a.ptr(), i), *const two = PyTuple_GET_ITEM(b.ptr(), i);
        const bool plain = PyUnicode_CheckExact(one) && PyUnicode_CheckExact(two);
        if (one != two && !(plain && PyUnicode_Compare(one, two) == 0)) {
            return false;
        }
    }
    return true;
}

}  // namespace

Recipe::Recipe(const py::tuple& facts, py::object interop, Framework framework, py::object wrapper, py::dict attributes,
               py::object main, const Shape& shape, py::object deferred, bool falls_back)
    : guard_(facts),
      interop_owner_(std::move(interop)),
      interop_(&interop_owner_.cast<const Interop&>()),
      framework_(framework),
      wrapper_(std::move(wrapper)),
      attributes_(std::move(attributes)),
      main_(std::move(main)),
      shape_(shape),
      deferred_(std::move(deferred)),
      falls_back_(falls_back) {}

bool Recipe::holds(const py::handle& subject) const { return guard_.holds_for(subject); }

Recipe Recipe::extended(py::tuple names, const py::bytes& signature, const py::object& steps, py::dict values,
                        bool failed) const {
    std::size_t main = 0;
    while (!main_.is_none() && main < names.size() && !py::object(names[main]).equal(main_)) {
        ++main;
    }
    if (main >= names.size()) {
        throw py::key_error("the column to pad by is not among the names");
    }
    Recipe result = *this;
    if (result.decisions_.size() >= most_decisions) {
        result.decisions_.clear();
    }
    const bool falls_back = steps.is_none();
    const py::tuple given = falls_back ? py::tuple() : py::tuple(steps);
    const bool plain = plain_names(names);
    Retries retries;
    if (failed) {
        retries.failed();
    }
    result.decisions_.push_back({std::move(names), main, std::string(signature), given, parse_steps(given),
                                 std::move(values), falls_back, retries, plain});
    return result;
}

const Recipe::Decision* Recipe::find(const py::tuple& names, const Columns& columns, std::int64_t* width) const {
    std::string signature;
    const Decision* measured = nullptr;
    for (const Decision& decision : decisions_) {
        if (!same_names(names, decision.names)) {
            continue;
        }
        if (measured == nullptr || measured->main != decision.main) {
            measured = &decision;
            const std::int64_t longest = main_.is_none() ? 0 : columns.at(decision.main).max_length;
            *width = (longest + shape_.multiple_of - 1) / shape_.multiple_of * shape_.multiple_of;
            signature = columns.signature(decision.main, *width);
        }
        if (signature == decision.signature) {
            return &decision;
        }
    }
    return nullptr;
}

py::object Recipe::wrapped(py::dict data) const {
    if (wrapper_.is_none()) {
        return std::move(data);
    }
    auto* const type = reinterpret_cast<PyTypeObject*>(wrapper_.ptr());
    auto batch = py::reinterpret_steal<py::object>(type->tp_new(type, py::tuple().ptr(), nullptr));
    if (!batch) {
        throw py::error_already_set();
    }
    auto state = py::reinterpret_steal<py::dict>(PyObject_GenericGetDict(batch.ptr(), nullptr));
    if (!state || PyDict_Update(state.ptr(), attributes_.ptr()) != 0) {
        throw py::error_already_set();
    }
    state["data"] = std::move(data);
    return batch;
}

py::object Recipe::run(const py::handle& subject, const py::object& features) const {
    if (!holds(subject)) {
        return py::none();
    }
    py::tuple names;
    Columns columns;
    if (!collect_columns(features, py::none(), *interop_, &names, &columns)) {
        return py::none();
    }
    columns.look(*interop_);
    Shape shape = shape_;
    const Decision* const decision = find(names, columns, &shape.width);
    if (decision == nullptr) {
        return py::none();
    }
    if (decision->falls_back || decision->retries.skips()) {
        return to_the_reference();
    }
    if (!decision->plain_names) {
        columns.disturb();
    }
    std::size_t failed = 0;
    if (!deferred_.is_none()) {
        py::object batch;
        const Status status = defer(columns, decision->given, decision->steps, decision->values, *interop_, shape,
                                    {deferred_, !wrapper_.is_none()}, &batch, &failed);
        return status ? batch : py::none();
    }
    py::dict batch;
    const Status status = columns.run(decision->steps, decision->values, *interop_, framework_, shape, &batch, &failed);
    if (status) {
        decision->retries.succeeded();
        return wrapped(std::move(batch));
    }
    if (!falls_back_) {
        return py::none();
    }
    decision->retries.failed();
    return to_the_reference();
}

py::object Recipe::runner() const { return runner_of(*this); }

void register_recipe(py::module_& m) {
    py::class_<Recipe>(m, "Recipe")
        .def(
            py::init([](const py::tuple& facts, py::object interop, bool torch, py::object wrapper, py::dict attributes,
                        py::object main, std::int64_t multiple_of, bool left, py::object deferred, bool falls_back) {
                if (multiple_of < 1) {
                    throw py::value_error("multiple_of must be positive");
                }
                return Recipe(facts, std::move(interop), torch ? Framework::torch : Framework::numpy,
                              std::move(wrapper), std::move(attributes), std::move(main), {0, multiple_of, left},
                              std::move(deferred), falls_back);
            }),
            py::arg("facts"), py::arg("interop"), py::arg("torch"), py::arg("wrapper"), py::arg("attributes"),
            py::arg("main"), py::arg("multiple_of"), py::arg("left"), py::arg("deferred") = py::none(),
            py::arg("falls_back") = false)
        .def(
            "holds", [](const Recipe& self, const py::object& subject) { return self.holds(subject); },
            py::arg("subject"))
        .def("extended", &Recipe::extended, py::arg("names"), py::arg("signature"), py::arg("steps"), py::arg("values"),
             py::arg("failed") = false)
        .def("runner", &Recipe::runner);
}

}  // namespace quadrat
