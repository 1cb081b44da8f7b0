// The types that rows may have, handed in from Python so that _core needs no headers of theirs; an object as a row.
#pragma once

#include <cstring>

#include "../casters.hpp"
#include "dlpack.hpp"

namespace quadrat {

// The dimensions of one token: those of rows after the first.
using Trailing = std::vector<std::int64_t>;

// How many elements a token of these dimensions has; -1 for more than any memory holds.
inline std::int64_t elements_of(const Trailing& dimensions) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : dimensions) {
        constexpr std::int64_t most = std::int64_t{1} << 56;
        if (extent < 0 || (extent > 0 && elements > most / extent)) {
            return -1;
        }
        elements *= extent;
    }
    return elements;
}

// By Kind: what DLPack calls a type, beside its size.
inline constexpr dlpack::TypeCode type_codes[kind_count] = {
    dlpack::boolean,          dlpack::signed_integer, dlpack::unsigned_integer, dlpack::signed_integer,
    dlpack::unsigned_integer, dlpack::signed_integer, dlpack::unsigned_integer, dlpack::signed_integer,
    dlpack::unsigned_integer, dlpack::floating,       dlpack::floating,         dlpack::floating,
    dlpack::brain_floating};
constexpr int numpy_half = 23;  // NumPy's number of float16, which pybind11 does not name

// The class that an object's own class derives from.
enum class Base : std::uint8_t { none, array, tensor };

// The next of the parts of a torch.Tensor: object, implementation, storage, data. Each has the pointer to the next
// after a header, if Interop::learn_tensor found it there. It serves to prefetch many tensors, never to read one.
inline const char* next_part(const void* part, std::size_t header = 16) {
    const char* next = nullptr;
    std::memcpy(&next, static_cast<const char*>(part) + header, sizeof next);
    return next;
}

class Interop {
public:
    // libraries: what they are asked for, see Libraries in python/quadrat/support/memory.py.
    explicit Interop(const py::object& libraries);

    void traverse(Visitor& visit) const {
        visit(describe, make_tensor, make_shared, without_modes, is_negative, ndarray_, wrapper_, tensor_, in_worker_,
              way_to_read_, count_modes_, forward_ad_, level_, plain_);
        for (const auto& scalar : scalars_) {
            visit(scalar.first);
        }
    }

    bool is_ndarray(PyObject* object) const { return reinterpret_cast<PyObject*>(Py_TYPE(object)) == ndarray_.ptr(); }
    bool is_wrapper(PyObject* object) const { return reinterpret_cast<PyObject*>(Py_TYPE(object)) == wrapper_.ptr(); }
    bool is_tensor(PyObject* object) const { return reinterpret_cast<PyObject*>(Py_TYPE(object)) == tensor_.ptr(); }
    // What an object is whose class derives from ndarray or torch.Tensor and replaces nothing of it: no class between
    // the two has a name that the base has too, unless it is one of `plain`. Calls no code.
    Base base_of(PyObject* object) const {
        PyTypeObject* const type = Py_TYPE(object);
        return PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) != 0 ? base_of_class(type) : Base::none;
    }
    // Whether an object is a number of NumPy's, by its exact type, and its kind.
    bool scalar_kind(PyObject* object, Kind* out) const {
        for (const auto& [type, kind] : scalars_) {
            if (reinterpret_cast<PyObject*>(Py_TYPE(object)) == type.ptr()) {
                *out = kind;
                return true;
            }
        }
        return false;
    }
    // Whether tensors may have tangents now, which only a level of forward-mode differentiation gives them.
    bool in_dual_level() const;
    // Whether tensors of a batch are to be in shared memory.
    bool shares() const { return may_be_worker && in_worker_().cast<bool>(); }

    // implementation, storage: the addresses torch gives for parts of `tensor`. Where they are found in it, tensors are
    // looked into ahead, see next_part.
    void learn_tensor(const py::object& tensor, std::uintptr_t implementation, std::uintptr_t storage);

    int way_to_read(PyObject* type) const {
        return way_to_read_.is_none() ? 0 : way_to_read_(py::handle(type)).cast<int>();
    }
    bool in_mode() const {
        return !count_modes_.is_none() && !without_modes.is_none() && count_modes_().cast<std::int64_t>() > 0;
    }
    // Whether seeing tensors, or making outputs, calls Python code.
    bool calls_python() const { return may_be_worker || (!tensor_.is_none() && exchange == nullptr); }

    const py::object describe, make_tensor, make_shared, without_modes;
    const py::object is_negative;  // torch.Tensor.is_neg, whatever a tensor has of its own under that name
    const dlpack::ExchangeApi* exchange = nullptr;
    bool may_be_worker = false;
    bool knows_tensors = false;

private:
    Base base_of_class(PyTypeObject* type) const;

    // None is nobody's type, so it serves as "not there".
    py::object ndarray_, wrapper_, tensor_, in_worker_, way_to_read_, count_modes_, forward_ad_, level_;
    py::tuple plain_;
    std::vector<std::pair<py::object, Kind>> scalars_;
};

// The row in `object`, of as many tokens as `length` says, and its form (see Form); `trailing` are its dimensions after
// the first if that is form_deep, and left alone if not. Anything unknown is form_other with length 0. The row points
// into the object and lives as long as it does.
std::uint32_t view(PyObject* object, const Interop& interop, Row* row, Trailing* trailing);

inline bool is_sequence(const py::handle& object) {
    return PyList_CheckExact(object.ptr()) || PyTuple_CheckExact(object.ptr());
}

// A new reference to sequence[i] of a list or tuple; empty where it has shrunk meanwhile.
py::object item_of_any(PyObject* sequence, Py_ssize_t i);
inline py::object item_of(PyObject* sequence, Py_ssize_t i) {
    if (free_threaded || !PyList_Check(sequence)) {
        return item_of_any(sequence, i);
    }
    return i < PyList_GET_SIZE(sequence) ? py::reinterpret_borrow<py::object>(PyList_GET_ITEM(sequence, i))
                                         : py::object();
}

// Whether two names of columns are the same. Comparing others than plain strings would run code of the user's.
inline bool is_same_name(const py::handle& a, const py::handle& b) {
    const bool plain = PyUnicode_CheckExact(a.ptr()) && PyUnicode_CheckExact(b.ptr());
    return a.is(b) || (plain && PyUnicode_Compare(a.ptr(), b.ptr()) == 0);
}

// What other threads cannot change: without the GIL, a tuple in place of a list.
py::object as_it_is_now(py::object sequence);

}  // namespace quadrat
