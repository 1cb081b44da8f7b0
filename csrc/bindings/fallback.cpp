#include "fallback.hpp"

#include "register.hpp"
#include "runner.hpp"

namespace quadrat {

py::object KnownFallback::run(const py::handle& subject, const py::object& features) const {
    const bool rows = PyList_CheckExact(features.ptr()) || PyTuple_CheckExact(features.ptr());
    return rows && guard_.holds_for(subject) ? to_the_reference() : py::none();
}

void register_fallback(py::module_& m) {
    m.def("known_fallback", [](const py::tuple& facts) { return runner_of(KnownFallback(facts)); }, py::arg("facts"));
}

}  // namespace quadrat
