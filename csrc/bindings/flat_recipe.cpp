// A recipe for flattened batches, as Recipe is one for padded batches: nothing is decided twice.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "defer.hpp"
#include "fallback.hpp"
#include "flatten.hpp"
#include "guard.hpp"
#include "register.hpp"
#include "runner.hpp"
#include "table.hpp"
#include "view.hpp"
#include "walk.hpp"

namespace quadrat {
namespace {

constexpr std::size_t most_decisions = 16;

class FlatRecipe {
public:
    static constexpr const char* runner_name = "quadrat.flat_recipe";

    // names: the columns that are read. absent: one that the first feature must not have, or None. plan: all but the
    // steps. deferred: what makes a deferred batch, or None.
    FlatRecipe(const py::tuple& facts, py::object interop, Framework framework, py::tuple names, py::object absent,
               FlatPlan plan, py::object deferred)
        : guard_(facts),
          interop_owner_(std::move(interop)),
          interop_(&interop_owner_.cast<const Interop&>()),
          framework_(framework),
          names_(std::move(names)),
          plain_names_(plain_names(names_)),
          absent_(std::move(absent)),
          plan_(std::move(plan)),
          deferred_(std::move(deferred)) {}

    bool holds(const py::handle& subject) const { return guard_.holds_for(subject); }

    bool is_for(const py::tuple& names) const { return names_.equal(names); }

    // This recipe and one more decision, about batches with this signature: steps, or None to fall back.
    FlatRecipe extended(const py::bytes& signature, py::object steps) const {
        FlatRecipe result = *this;
        if (result.decisions_.size() >= most_decisions) {
            result.decisions_.clear();
        }
        result.decisions_.push_back({std::string(signature), std::move(steps)});
        return result;
    }

    // The batch; None when the guard does not hold, no decision is known, or a row does not go as decided.
    // NotImplemented where it is known to fall back.
    py::object run(const py::handle& subject, const py::object& features) const {
        if (!holds(subject) || !lacks_absent(features)) {
            return py::none();
        }
        py::tuple keys;
        Columns columns;
        if (!collect_columns(features, names_, *interop_, &keys, &columns) || columns.columns.front().owners.empty()) {
            return py::none();
        }
        columns.look(*interop_);
        if (!plain_names_) {
            columns.disturb();
        }
        const std::string signature = columns.signature(0, 1);
        const auto found = std::find_if(decisions_.begin(), decisions_.end(),
                                        [&](const Decision& decision) { return decision.signature == signature; });
        if (found == decisions_.end()) {
            return py::none();
        }
        if (found->steps.is_none()) {
            return to_the_reference();
        }
        FlatPlan plan = plan_;
        plan.steps = py::tuple(found->steps);
        if (!deferred_.is_none()) {
            py::object batch = defer_flat(columns, plan, *interop_, {deferred_, false});
            return PyTuple_CheckExact(batch.ptr()) ? py::none() : batch;
        }
        py::object batch = flatten_batch(columns, plan, *interop_, framework_);
        return PyDict_CheckExact(batch.ptr()) ? batch : py::none();
    }

    py::object runner() const { return runner_of(*this); }

private:
    struct Decision {
        std::string signature;
        py::object steps;
    };

    bool lacks_absent(const py::object& features) const {
        if (const TableRows* const rows = table_rows(features)) {
            return absent_.is_none() || !rows->has(absent_);
        }
        if (!PyList_CheckExact(features.ptr()) && !PyTuple_CheckExact(features.ptr())) {
            return false;
        }
        if (absent_.is_none()) {
            return true;
        }
        const py::object first = PlainDicts(*interop_).dict_of(item_of(features.ptr(), 0));
        return first && !Walk::lookup(first, absent_.ptr());
    }

    Guard guard_;
    py::object interop_owner_;
    const Interop* interop_;
    Framework framework_;
    py::tuple names_;
    bool plain_names_;
    py::object absent_;
    FlatPlan plan_;
    py::object deferred_;
    std::vector<Decision> decisions_;
};

}  // namespace

void register_flat_recipe(py::module_& m) {
    py::class_<FlatRecipe>(m, "FlatRecipe")
        .def(py::init([](const py::tuple& facts, py::object interop, bool torch, py::tuple names, py::object absent,
                         py::dict values, std::int64_t multiple_of, py::object separator, std::int64_t start,
                         py::object deferred) {
                 return FlatRecipe(facts, std::move(interop), torch ? Framework::torch : Framework::numpy,
                                   std::move(names), std::move(absent),
                                   {py::tuple(), std::move(values), multiple_of, std::move(separator), start},
                                   std::move(deferred));
             }),
             py::arg("facts"), py::arg("interop"), py::arg("torch"), py::arg("names"), py::arg("absent"),
             py::arg("values"), py::arg("multiple_of"), py::arg("separator"), py::arg("start"),
             py::arg("deferred") = py::none())
        .def(
            "holds", [](const FlatRecipe& self, const py::object& subject) { return self.holds(subject); },
            py::arg("subject"))
        .def("is_for", &FlatRecipe::is_for, py::arg("names"))
        .def("extended", &FlatRecipe::extended, py::arg("signature"), py::arg("steps"))
        .def("runner", &FlatRecipe::runner);
}

}  // namespace quadrat
