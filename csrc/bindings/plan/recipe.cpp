#include "recipe.hpp"

#include <exception>
#include <utility>

#include "../classes.hpp"
#include "../deferred/defer.hpp"
#include "../input/table.hpp"
#include "../input/view.hpp"
#include "../input/walk.hpp"
#include "../register.hpp"
#include "execute.hpp"

namespace quadrat {
namespace {

constexpr std::size_t most_decisions = 32;  // searched one by one; a data set needs a handful

// Of names that are no plain strings, a comparison is the user's code: they are the same where they are one object.
bool same_names(const py::tuple& a, const py::tuple& b) {
    if (a.is(b)) {
        return true;
    }
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

// Whether the first feature has no such column; false for features that no recipe reads.
bool first_lacks(const py::object& features, const py::handle& name, const Interop& interop) {
    if (const TableRows* const rows = table_rows(features)) {
        return !rows->has(name);
    }
    if (!PyList_CheckExact(features.ptr()) && !PyTuple_CheckExact(features.ptr())) {
        return false;
    }
    const py::object first = PlainDicts(interop).dict_of(item_of(features.ptr(), 0));
    return first && !Walk::lookup(first, name.ptr());
}

// Batches that recipes of this process made.
std::atomic<std::int64_t> known_batches{0};

// What a runner returns in place of a batch that the reference is to make.
py::object to_the_reference() { return py::reinterpret_borrow<py::object>(Py_NotImplemented); }

PyObject* run_recipe(PyObject* recipe, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "run(collator, features) takes two arguments");
        return nullptr;
    }
    try {
        return value_of<const Recipe>(recipe)
            ->run(arguments[0], py::reinterpret_borrow<py::object>(arguments[1]))
            .release()
            .ptr();
    } catch (py::error_already_set& error) {
        error.restore();
    } catch (const std::exception&) {
        py::detail::try_translate_exceptions();  // to what a function made by pybind11 raises
    }
    return nullptr;
}

// A function run(collator, features). A plain C function, which is called without a look at argument types and
// overloads.
py::object runner(const py::object& recipe) {
    static PyMethodDef method = {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_recipe)),
                                 METH_FASTCALL, "run(collator, features): the batch, None or NotImplemented."};
    static_cast<void>(recipe.cast<const Recipe&>());  // the function itself does not ask what it was given
    auto function = py::reinterpret_steal<py::object>(PyCFunction_New(&method, recipe.ptr()));
    if (!function) {
        throw py::error_already_set();
    }
    return function;
}

}  // namespace

Recipe::Recipe(const py::tuple& facts, py::object interop, Source source, BatchLayout layout, Result result)
    : guard_(facts),
      interop_owner_(std::move(interop)),
      interop_(&interop_owner_.cast<const Interop&>()),
      source_(std::move(source)),
      width_(std::exchange(layout.width, 1)),  // of a batch that is not padded, 1 tells if a row is empty
      layout_(std::move(layout)),
      result_(std::move(result)) {}

Recipe Recipe::extended(py::tuple names, const py::bytes& signature, const py::object& steps, py::dict values,
                        bool failed) const {
    names = source_.names.is_none() ? names : py::tuple(source_.names);  // the same object is compared at once
    std::size_t main = 0;
    while (!source_.main.is_none() && main < names.size() && !py::object(names[main]).equal(source_.main)) {
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
    const bool plain = plain_names(names);
    Retries retries;
    if (failed) {
        retries.failed();
    }
    result.decisions_.push_back({std::move(names), main, std::string(signature),
                                 parse_plan(falls_back ? py::tuple() : py::tuple(steps), std::move(values)), falls_back,
                                 retries, plain});
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
            if (!source_.main.is_none()) {
                const std::int64_t longest = columns.at(decision.main).max_length;
                *width = width_ < 0 ? round_up(longest, layout_.multiple_of) : width_;
                if (*width < longest) {
                    return nullptr;
                }
            }
            signature = columns.signature(decision.main, *width);
        }
        if (signature == decision.signature) {
            return &decision;
        }
    }
    return nullptr;
}

py::object Recipe::wrapped(py::object data) const {
    if (result_.wrapper.is_none()) {
        return data;
    }
    auto* const type = reinterpret_cast<PyTypeObject*>(result_.wrapper.ptr());
    auto batch = py::reinterpret_steal<py::object>(type->tp_new(type, py::tuple().ptr(), nullptr));
    if (!batch) {
        throw py::error_already_set();
    }
    auto state = py::reinterpret_steal<py::dict>(PyObject_GenericGetDict(batch.ptr(), nullptr));
    if (!state || PyDict_Update(state.ptr(), result_.attributes.ptr()) != 0) {
        throw py::error_already_set();
    }
    state["data"] = std::move(data);
    return batch;
}

bool Recipe::collect(const py::object& features, py::tuple* names, Columns* columns, BatchLayout* layout) const {
    if (source_.bare) {
        *names = source_.names;
        return columns->hold_values(features);
    }
    if (source_.plain.is_none()) {
        return collect_columns(features, source_.names, *interop_, names, columns);
    }
    layout->choices = collect_choices(features, source_.plain, source_.main, *interop_, names, columns);
    return layout->choices != 0;
}

py::object Recipe::run(const py::handle& subject, const py::object& features) const {
    if (!holds(subject)) {
        return py::none();
    }
    const bool rows = PyList_CheckExact(features.ptr()) || PyTuple_CheckExact(features.ptr());
    if (result_.always) {
        return rows ? to_the_reference() : py::none();
    }
    if (const int fallen = fallen_ + 1; rows && fallen > few) {
        fallen_ = fallen;
        if (fallen < 2 * few) {
            return to_the_reference();
        }
    }
    for (const py::handle name : source_.absent) {
        if (!first_lacks(features, name, *interop_)) {
            return py::none();
        }
    }
    py::tuple names;
    Columns columns;
    BatchLayout layout = layout_;
    if (!collect(features, &names, &columns, &layout)) {
        return py::none();
    }
    columns.look(*interop_);
    const Decision* const decision = find(names, columns, &layout.width);
    if (decision == nullptr) {
        return py::none();
    }
    if (decision->falls_back || decision->retries.skips()) {
        fallen_ = decision->falls_back ? std::min(fallen_ + 1, few) : 0;  // what failed has its own turns
        return to_the_reference();
    }
    if (!decision->plain_names) {
        columns.invalidate();
    }
    py::object batch;
    std::size_t failed = 0;
    const bool defers = !result_.deferred.is_none();
    const Status status = defers
                              ? defer(columns, decision->plan, layout, *interop_,
                                      {result_.deferred, !result_.wrapper.is_none()}, &batch, &failed)
                              : execute(columns, decision->plan, layout, *interop_, result_.framework, &batch, &failed);
    if (status) {
        decision->retries.succeeded();
        fallen_ = 0;
        known_batches.fetch_add(1, std::memory_order_relaxed);
        if (!result_.notice.is_none()) {
            result_.notice(subject);
        }
        return defers ? batch : wrapped(std::move(batch));
    }
    if (!result_.falls_back) {
        return py::none();
    }
    decision->retries.failed();
    return to_the_reference();
}

void register_recipe(py::module_& m) {
    bind_class<Recipe>(m, "Recipe")
        .def(py::init([](const py::tuple& facts, py::object interop, Framework torch, const py::tuple& layout,
                         py::object wrapper, py::dict attributes, py::object main, py::object names, py::tuple absent,
                         py::object deferred, bool falls_back, bool always, py::object notice, bool bare,
                         py::object plain) {
                 return Recipe(facts, std::move(interop),
                               {std::move(names), bare, std::move(absent), std::move(main), std::move(plain)},
                               layout_of(layout),
                               {torch, std::move(wrapper), std::move(attributes), std::move(deferred),
                                std::move(notice), falls_back, always});
             }),
             "facts"_a, "interop"_a, "torch"_a, "layout"_a, "wrapper"_a = py::none(), "attributes"_a = py::dict(),
             "main"_a = py::none(), "names"_a = py::none(), "absent"_a = py::tuple(), "deferred"_a = py::none(),
             "falls_back"_a = false, "always"_a = false, "notice"_a = py::none(), "bare"_a = false,
             "plain"_a = py::none())
        .def("holds", &Recipe::holds, "subject"_a)
        .def("extended", &Recipe::extended, "names"_a, "signature"_a, "steps"_a, "values"_a, "failed"_a = false)
        .def("runner", &runner);
    m.def(
        "known_batches",
        [](bool reset) {
            return reset ? known_batches.exchange(0, std::memory_order_relaxed)
                         : known_batches.load(std::memory_order_relaxed);
        },
        "reset"_a);
}

}  // namespace quadrat
