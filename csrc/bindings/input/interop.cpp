#include "interop.hpp"

#include "../classes.hpp"
#include "../register.hpp"
#include "walk.hpp"

namespace quadrat {

Interop::Interop(py::object ndarray, py::object wrapper, py::object tensor, const py::object& exchange,
                 py::object describe, py::object make_tensor, py::object in_worker, py::object make_shared,
                 const py::tuple& scalars, py::object way_to_read, py::object count_modes, py::object without_modes,
                 py::object forward_ad)
    : ndarray_(std::move(ndarray)),
      wrapper_(std::move(wrapper)),
      tensor_(std::move(tensor)),
      describe_(std::move(describe)),
      make_tensor_(std::move(make_tensor)),
      in_worker_(std::move(in_worker)),
      make_shared_(std::move(make_shared)),
      way_to_read_(std::move(way_to_read)),
      count_modes_(std::move(count_modes)),
      without_modes_(std::move(without_modes)),
      is_negative_(tensor_.is_none() ? py::object(py::none()) : py::object(tensor_.attr("is_neg"))),
      forward_ad_(std::move(forward_ad)),
      level_(py::reinterpret_steal<py::object>(PyUnicode_InternFromString("_current_level"))) {
    if (!forward_ad_.is_none() && !PyDict_CheckExact(forward_ad_.ptr())) {
        throw py::type_error("forward_ad must be a dict");
    }
    for (const py::handle item : scalars) {
        const auto scalar = py::reinterpret_borrow<py::tuple>(item);
        scalars_.emplace_back(scalar[0], scalar[1].cast<Kind>());
    }
    if (exchange.is_none()) {
        return;
    }
    const void* const pointer = PyCapsule_GetPointer(exchange.ptr(), dlpack::capsule_name);
    if (pointer == nullptr) {
        throw py::error_already_set();
    }
    const auto* const api = static_cast<const dlpack::ExchangeApi*>(pointer);
    // Another major version may order its fields otherwise: then the slower way serves.
    if (api->header.version.major == dlpack::abi_major && api->view_of_object != nullptr &&
        api->tensor_to_object != nullptr) {
        exchange_ = api;
    }
}

bool Interop::in_dual_level() const {
    if (forward_ad_.is_none()) {
        return false;
    }
    const py::object level = Walk::lookup(forward_ad_, level_.ptr());
    return !level || !PyLong_CheckExact(level.ptr()) || PyLong_AsLong(level.ptr()) >= 0;  // -1: in none
}

void Interop::learn_tensor(const py::object& tensor, std::uintptr_t implementation, std::uintptr_t storage) {
    constexpr std::size_t header = sizeof(PyObject);
    const bool has_room = static_cast<std::size_t>(Py_TYPE(tensor.ptr())->tp_basicsize) >= header + sizeof(void*);
    const char* const part = is_tensor(tensor.ptr()) && has_room ? next_part(tensor.ptr(), header) : nullptr;
    knows_tensors_ = part != nullptr && reinterpret_cast<std::uintptr_t>(part) == implementation &&
                     reinterpret_cast<std::uintptr_t>(next_part(part)) == storage && storage != 0;
}

void register_interop(py::module_& m) {
    bind_class<Interop>(m, "Interop")
        .def(py::init<py::object, py::object, py::object, const py::object&, py::object, py::object, py::object,
                      py::object, const py::tuple&, py::object, py::object, py::object, py::object>(),
             "ndarray"_a, "wrapper"_a, "tensor"_a, "exchange"_a, "describe"_a, "make_tensor"_a,
             "in_worker"_a = py::none(), "make_shared"_a = py::none(), "scalars"_a = py::tuple(),
             "way_to_read"_a = py::none(), "count_modes"_a = py::none(), "without_modes"_a = py::none(),
             "forward_ad"_a = py::none())
        .def_property("may_be_worker", &Interop::may_be_worker, &Interop::set_may_be_worker)
        .def("learn_tensor", &Interop::learn_tensor, "tensor"_a, "implementation"_a, "storage"_a)
        .def_property_readonly("knows_tensors", &Interop::knows_tensors)
        .def_property_readonly("has_exchange", &Interop::has_exchange);
}

}  // namespace quadrat
