// One Python object to a row: the only code that asks what kind of Python object a row is.
#include "view.hpp"

#include <pybind11/numpy.h>

#include <iterator>

#include "../errors.hpp"
#include "columns.hpp"
#include "decode.hpp"

namespace quadrat {
namespace {

bool kind_of_bits(char letter, int bits, Kind* out) {
    const auto pick = [&](Kind one, Kind two, Kind four, Kind eight) {
        *out = bits == 8 ? one : bits == 16 ? two : bits == 32 ? four : eight;
        return bits == 8 || bits == 16 || bits == 32 || bits == 64;
    };
    switch (letter) {
        case 'b':
            *out = Kind::bool_;
            return bits == 8;
        case 'i':
            return pick(Kind::int8, Kind::int16, Kind::int32, Kind::int64);
        case 'u':
            return pick(Kind::uint8, Kind::uint16, Kind::uint32, Kind::uint64);
        case 'f':
            *out = bits == 32 ? Kind::float32 : Kind::float64;
            return bits == 32 || bits == 64;
        default:
            return false;
    }
}

// NumPy's numbers of its types up to double, which follow C's.
bool kind_of_number(int type_number, Kind* out) {
    constexpr Kind long_kind = sizeof(long) == 8 ? Kind::int64 : Kind::int32;
    constexpr Kind unsigned_long_kind = sizeof(long) == 8 ? Kind::uint64 : Kind::uint32;
    static constexpr Kind kinds[] = {Kind::bool_,  Kind::int8,    Kind::uint8,  Kind::int16,        Kind::uint16,
                                     Kind::int32,  Kind::uint32,  long_kind,    unsigned_long_kind, Kind::int64,
                                     Kind::uint64, Kind::float32, Kind::float64};
    if (type_number < 0 || type_number >= static_cast<int>(std::size(kinds))) {
        return false;
    }
    *out = kinds[type_number];
    return true;
}

// Fields are read where they lie: a py::dtype would count references of an object that all arrays share.
bool view_array(PyObject* object, Row* row) {
    const auto* const array = py::detail::array_proxy(object);
    const auto* const dtype = py::detail::array_descriptor_proxy(array->descr);
    if (array->nd != 1 || (dtype->byteorder != '=' && dtype->byteorder != '|') ||
        !kind_of_number(dtype->type_num, &row->kind)) {
        return false;
    }
    row->data = array->data;
    row->length = array->dimensions[0];
    row->stride = array->strides[0];
    return true;
}

// What the library says of a tensor: form_tensor for one of one dimension, form_tensor_number for one of none,
// form_other where its numbers are not what its memory holds, or not numbers alone.
std::uint32_t described_tensor(PyObject* object, const Interop& interop, Row* row) {
    if (interop.exchange() == nullptr) {
        const auto seen = py::reinterpret_steal<py::object>(PyObject_CallOneArg(interop.describe().ptr(), object));
        clear_error();
        if (!seen || seen.is_none()) {
            return form_other;
        }
        const auto fields = seen.cast<std::tuple<std::uintptr_t, std::int64_t, std::int64_t, int>>();
        row->data = reinterpret_cast<const void*>(std::get<0>(fields));
        const std::int64_t length = std::get<1>(fields);  // -1: of no dimension
        row->length = length < 0 ? 1 : length;
        row->stride = std::get<2>(fields);
        row->kind = static_cast<Kind>(std::get<3>(fields));
        return length < 0 ? form_tensor_number : form_tensor;
    }
    dlpack::Tensor view{};
    if (interop.exchange()->view_of_object(object, &view) != 0) {
        clear_error();  // sparse, meta and other tensors without memory of their own: the reference's business
        return form_other;
    }
    const char letter = view.dtype.code == dlpack::signed_integer     ? 'i'
                        : view.dtype.code == dlpack::unsigned_integer ? 'u'
                        : view.dtype.code == dlpack::floating         ? 'f'
                        : view.dtype.code == dlpack::boolean          ? 'b'
                                                                      : '?';
    if (view.device.type != dlpack::device_cpu || view.ndim > 1 || view.dtype.lanes != 1 ||
        !kind_of_bits(letter, view.dtype.bits, &row->kind)) {
        return form_other;
    }
    // The exchange shows the stored numbers: a lazily negated view (x.imag of a conjugate) means others, and a tensor
    // that records gradients, or may have a tangent, is more than its numbers.
    const py::handle tensor(object);
    if (letter == 'f' && (interop.in_dual_level() || tensor.attr("requires_grad").cast<bool>() ||
                          interop.is_negative()(tensor).cast<bool>())) {
        return form_other;
    }
    const auto item = static_cast<std::int64_t>(item_size(row->kind));
    row->data = static_cast<const char*>(view.data) + view.byte_offset;
    row->length = view.ndim == 0 ? 1 : view.shape[0];
    row->stride = view.ndim == 0 || view.strides == nullptr ? item : view.strides[0] * item;
    return view.ndim == 0 ? form_tensor_number : form_tensor;
}

// Zero tensors, functional ones and those whose storage was given back say that they are on the CPU, at no address.
std::uint32_t view_tensor(PyObject* object, const Interop& interop, Row* row) {
    const std::uint32_t form = described_tensor(object, interop, row);
    return row->data == nullptr && row->length > 0 ? static_cast<std::uint32_t>(form_other) : form;
}

// A number of NumPy's, by its exact type: the value follows the object's header, as NumPy's headers declare it.
bool view_scalar(PyObject* object, const Interop& interop, Row* row) {
    if (!interop.scalar_kind(object, &row->kind)) {
        return false;
    }
    row->data = reinterpret_cast<const char*>(object) + sizeof(PyObject);
    row->length = 1;
    row->stride = static_cast<std::int64_t>(item_size(row->kind));
    return true;
}

}  // namespace

py::object item_of(PyObject* sequence, Py_ssize_t i) {
    auto item = py::reinterpret_steal<py::object>(PySequence_GetItem(sequence, i));
    if (!item) {
        clear_error();
    }
    return item;
}

py::object as_it_is_now(py::object sequence) {
    if (free_threaded && PyList_CheckExact(sequence.ptr())) {
        sequence = py::reinterpret_steal<py::object>(PyList_AsTuple(sequence.ptr()));
    }
    return sequence;
}

std::uint32_t view(PyObject* object, const Interop& interop, Row* row) {
    *row = Row{};
    if (PyList_CheckExact(object) || PyTuple_CheckExact(object)) {
        const bool list = PyList_CheckExact(object);
        row->length = list ? PyList_GET_SIZE(object) : PyTuple_GET_SIZE(object);
        if (row->length > 0) {
            const py::object first = item_of(object, 0);
            if (!first || !number_kind(first.ptr(), &row->kind)) {
                *row = Row{};
                return form_other;
            }
        }
        return list ? form_list : form_tuple;
    }
    std::uint32_t form = form_other;
    if (interop.is_ndarray(object)) {
        form = view_array(object, row) ? form_array : form_other;
    } else if (number_kind(object, &row->kind)) {
        row->length = 1;
        return form_number;
    } else if (interop.is_tensor(object)) {
        form = view_tensor(object, interop, row);
    } else if (view_scalar(object, interop, row)) {
        form = form_scalar;
    }
    if (form == form_other) {
        *row = Row{};
    }
    return form;
}

}  // namespace quadrat
