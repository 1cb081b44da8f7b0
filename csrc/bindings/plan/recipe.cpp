#include "recipe.hpp"

#include <algorithm>
#include <exception>

#include "../classes.hpp"
#include "../input/table.hpp"
#include "../input/walk.hpp"

namespace quadrat {
namespace {

// Batches that recipes of this process made: of known kinds, and of kinds that were decided for them.
std::atomic<std::int64_t> known_batches{0}, planned_batches{0};

PyObject* run_recipes(PyObject* recipes, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "run(collator, features) takes two arguments");
        return nullptr;
    }
    try {
        return value_of<const Recipes>(recipes)
            ->run(py::reinterpret_borrow<py::object>(arguments[0]), py::reinterpret_borrow<py::object>(arguments[1]),
                  true)
            .release()
            .ptr();
    } catch (py::error_already_set& error) {
        error.restore();
    } catch (const std::exception&) {
        py::detail::try_translate_exceptions();  // to what a function made by pybind11 raises
    }
    return nullptr;
}

// run(collator, features) as a plain C function, which is called without a look at argument types and overloads.
py::object runner(const py::object& recipes) {
    static PyMethodDef method = {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_recipes)),
                                 METH_FASTCALL, "run(collator, features): the batch, why it falls back, or None."};
    static_cast<void>(recipes.cast<const Recipes&>());  // the function itself does not ask what it was given
    return taken(PyCFunction_New(&method, recipes.ptr()));
}

void update(const py::object& dict, const py::object& additions) {
    if (PyDict_Update(dict.ptr(), additions.ptr()) != 0) {
        throw py::error_already_set();
    }
}

}  // namespace

Recipe::Recipe(py::object spec, const py::tuple& facts, py::object interop, py::object deferred, bool compared)
    : guard_(facts),
      spec_(std::move(spec)),
      interop_owner_(std::move(interop)),
      interop_(&interop_owner_.cast<const Interop&>()),
      names_(spec_.attr("names")),
      optional_(spec_.attr("optional")),
      read_(spec_.attr("read")),
      absent_(spec_.attr("absent")),
      only_(spec_.attr("only")),
      main_(spec_.attr("main")),
      bare_(spec_.attr("bare").cast<bool>()),
      plain_(spec_.attr("plain")),
      layout_(layout_of(spec_.attr("layout"))),
      framework_(spec_.attr("framework").cast<std::string>() == "pt" ? Framework::torch : Framework::numpy),
      wrapper_(spec_.attr("wrapper")),
      deferred_(std::move(deferred)),
      check_(spec_.attr("check")),
      finish_(spec_.attr("finishes").cast<bool>() ? py::object(spec_.attr("finish")) : py::none()),
      compared_(compared) {}

Recipe::~Recipe() {
    for (const auto& place : decisions_) {
        const std::unique_ptr<const Decision> decision(place.load(std::memory_order_acquire));
    }
}

// Whether features have the form that the recipe is for, as far as the first one tells.
bool Recipe::admits(const py::object& features) const {
    if (!bare_ && names_.is_none() && absent_.empty()) {
        return true;
    }
    if (bare_) {
        const py::object row = is_sequence(features) ? item_of(features.ptr(), 0) : py::object();
        return row && (is_sequence(row) || !PlainDicts(*interop_).dict_of(row));
    }
    const TableRows* const rows = table_rows(features);
    py::object first;
    if (rows == nullptr) {
        first = is_sequence(features) ? PlainDicts(*interop_).dict_of(item_of(features.ptr(), 0)) : py::object();
        if (!first) {
            return false;
        }
    }
    const auto has = [&](const py::handle& name) {
        return rows != nullptr ? rows->has(name) : static_cast<bool>(Walk::lookup(first, name.ptr()));
    };
    const auto all = [&](const py::handle& names, bool wanted) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.ptr()); ++i) {
            if (has(PyTuple_GET_ITEM(names.ptr(), i)) != wanted) {
                return false;
            }
        }
        return true;
    };
    if (!all(absent_, false) || !(names_.is_none() || all(names_, true)) || !(plain_.is_none() || has(plain_))) {
        return false;
    }
    if (only_.is_none()) {
        return true;
    }
    const Py_ssize_t count =
        rows != nullptr ? static_cast<Py_ssize_t>(rows->table().names().size()) : PyDict_GET_SIZE(first.ptr());
    Py_ssize_t known = PyTuple_GET_SIZE(names_.ptr());
    for (const py::handle name : only_) {
        known += has(name) ? 1 : 0;
    }
    return known == count;
}

bool Recipe::collect(const py::object& features, py::tuple* names, Columns* columns, std::int64_t* choices) const {
    if (bare_) {
        *names = names_;
        return columns->hold_values(features);
    }
    if (!plain_.is_none()) {
        *choices = collect_choices(features, plain_, main_, *interop_, names, columns);
        return *choices != 0;
    }
    if (!collect_columns(features, names_, *interop_, names, columns, optional_)) {
        return false;
    }
    for (const auto& [name, skips] : optional_) {
        const std::int64_t rows = columns->add_optional(features, name, *interop_, skips.cast<bool>());
        if (rows > 0) {
            *names = py::tuple(*names + py::make_tuple(name));
        }
        if (rows < 0) {
            return false;
        }
    }
    for (std::size_t i = 0; i < names->size() && !read_.empty(); ++i) {
        const py::object name = (*names)[i];
        if (read_.contains(name)) {
            columns->columns[i].keeps_kind = true;
            if (read_[name].cast<bool>()) {
                columns->columns[i].make_dense(*interop_);
            }
        }
    }
    return true;
}

Recipe::Measured Recipe::measure(const py::tuple& names, const Columns& columns) const {
    if (columns.columns.empty()) {
        return {layout_.width, ""};
    }
    if (main_.is_none()) {  // 1 tells if a row is empty
        return {1, columns.signature(0, 1, false)};
    }
    const auto is_main = [&](const py::handle& name) { return is_same_name(name, main_); };
    const auto place = std::find_if(names.begin(), names.end(), is_main);
    const auto main = static_cast<std::size_t>(place == names.end() ? 0 : place - names.begin());
    const std::int64_t longest = columns.at(main).max_length;
    const std::int64_t width = layout_.width < 0 ? round_up(longest, layout_.multiple_of) : layout_.width;
    return {width, columns.signature(main, width, layout_.width >= 0)};
}

const Recipe::Decision* Recipe::find(const py::tuple& names, const std::string& signature) const {
    for (const auto& place : decisions_) {
        const Decision* const decision = place.load(std::memory_order_acquire);
        if (decision == nullptr) {
            return nullptr;
        }
        const py::tuple& known = decision->names;
        if (signature == decision->signature &&
            (names.is(known) || std::equal(names.begin(), names.end(), known.begin(), known.end(), is_same_name))) {
            return decision;
        }
    }
    return nullptr;
}

std::unique_ptr<Recipe::Decision> Recipe::decide(const py::object& collator, const py::tuple& names,
                                                 std::string signature) const {
    const py::tuple decision = spec_.attr("decide")(collator, names, py::bytes(signature));
    const auto is_plain = [](const py::handle& name) { return PyUnicode_CheckExact(name.ptr()) != 0; };
    return std::unique_ptr<Decision>(new Decision{names, std::move(signature), parse_plan(decision[0], decision[1]),
                                                  decision[2], decision[3],
                                                  std::all_of(names.begin(), names.end(), is_plain)});
}

// Publishes a decision where there is room; then the recipe owns it.
void Recipe::keep(std::unique_ptr<Decision>* decision) const {
    for (auto& place : decisions_) {
        const Decision* nothing = nullptr;
        if (place.compare_exchange_strong(nothing, decision->get(), std::memory_order_acq_rel)) {
            static_cast<void>(decision->release());
            return;
        }
    }
}

py::object Recipe::wrapped(py::object data) const {
    if (wrapper_.is_none()) {
        return data;
    }
    PyTypeObject* const type = Py_TYPE(wrapper_.ptr());
    py::object batch = taken(type->tp_new(type, py::tuple().ptr(), nullptr));
    const py::object state = taken(PyObject_GenericGetDict(batch.ptr(), nullptr));
    update(state, taken(PyObject_GenericGetDict(wrapper_.ptr(), nullptr)));
    state["data"] = std::move(data);
    return batch;
}

py::object Recipe::run(const py::object& collator, const py::object& features, bool compares) const {
    const bool known = admits(features) && holds(collator);
    return known ? make(collator, features, compares && compared_) : py::none();
}

py::object Recipe::make(const py::object& collator, const py::object& features, bool compares) const {
    if (!check_.is_none()) {
        py::object why = check_(features);
        if (!why.is_none()) {
            return why;
        }
    }
    py::tuple names;
    Columns columns;
    std::int64_t choices = 0;
    if (!collect(features, &names, &columns, &choices)) {
        return py::none();
    }
    columns.look(*interop_);
    return make_of(collator, features, names, columns, compares, choices);
}

py::object Recipe::make_of(const py::object& collator, const py::object& features, const py::tuple& names,
                           const Columns& columns, bool compares, std::int64_t choices) const {
    Measured measured = measure(names, columns);
    BatchLayout layout = layout_;
    layout.width = measured.width;
    layout.choices = choices;
    const Decision* decision = find(names, measured.signature);
    std::unique_ptr<Decision> fresh;
    const bool known = decision != nullptr;
    if (!known) {
        columns.invalidate();  // plans are Python code
        fresh = decide(collator, names, std::move(measured.signature));
        decision = fresh.get();
        if (holds(collator)) {  // else another thread changed what it was decided by
            keep(&fresh);
        }
    }
    if (!decision->refusal.is_none()) {
        return decision->refusal;
    }
    if (compares && decision->comparisons.should_compare(columns, names)) {
        return py::tuple();
    }
    py::object held;
    if (!decision->hold.is_none()) {
        columns.invalidate();
        held = decision->hold(features);
        if (PyTuple_CheckExact(held.ptr())) {
            return held;
        }
    } else if (!decision->plain_names) {
        columns.invalidate();
    }
    py::object batch;
    std::size_t failed = 0;
    const bool defers = !deferred_.is_none() && !held;
    const Status status =
        defers ? defer(columns, decision->plan, layout, *interop_, {deferred_, !wrapper_.is_none()}, &batch, &failed)
               : execute(columns, decision->plan, layout, *interop_, framework_, &batch, &failed);
    if (!status) {
        const py::object step = decision->plan.tuples[failed];
        py::object why = spec_.attr("failed")(collator, names, step, status);
        return why.is_none() ? py::bool_(false) : why;
    }
    if (held) {
        update(batch, held);
    }
    (known ? known_batches : planned_batches).fetch_add(1, std::memory_order_relaxed);
    batch = defers ? std::move(batch) : wrapped(std::move(batch));
    return finish_.is_none() ? batch : finish_(collator, batch, features);
}

Recipes::Recipes(const py::tuple& recipes) {
    for (const py::handle recipe : recipes) {
        recipes_.emplace_back(py::reinterpret_borrow<py::object>(recipe), &recipe.cast<const Recipe&>());
    }
}

py::object Recipes::run(const py::object& collator, const py::object& features, bool compares) const {
    const std::size_t first = last_.load(std::memory_order_relaxed), count = recipes_.size();
    bool failed = false;  // a recipe, which is to be asked first again
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = first + i < count ? first + i : first + i - count;
        py::object batch = recipes_[at].second->run(collator, features, compares);
        if (batch.ptr() == Py_False) {
            failed = true;
        } else if (!batch.is_none()) {
            last_.store(failed ? first : at, std::memory_order_relaxed);
            return batch;
        }
    }
    return py::none();
}

void register_recipe(py::module_& m) {
    bind_class<Recipe>(m, "Recipe")
        .def(py::init<py::object, const py::tuple&, py::object, py::object, bool>(), "spec"_a, "facts"_a, "interop"_a,
             "deferred"_a = py::none(), "compared"_a = false)
        .def("make", &Recipe::make, "collator"_a, "features"_a, "compares"_a = false)
        .def("holds", &Recipe::holds, "collator"_a);
    bind_class<Comparisons>(m, "Comparisons")
        .def(py::init<>())
        .def("should_compare", &Comparisons::should_compare, "columns"_a, "names"_a);
    bind_class<Recipes>(m, "Recipes")
        .def(py::init<const py::tuple&>(), "recipes"_a)
        .def("runner", &runner)
        .def("make", &Recipes::run, "collator"_a, "features"_a, "compares"_a = false);
    m.def(
        "made_batches",
        [](bool reset) {
            const auto count = [reset](std::atomic<std::int64_t>& batches) {
                return reset ? batches.exchange(0, std::memory_order_relaxed) : batches.load(std::memory_order_relaxed);
            };
            const std::int64_t known = count(known_batches);
            return py::make_tuple(known, count(planned_batches));
        },
        "reset"_a);
}

}  // namespace quadrat
