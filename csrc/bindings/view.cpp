// One Python object to a row: the only code that asks what kind of Python object a row is.
#include "view.hpp"

#include <pybind11/numpy.h>

#include "columns.hpp"
#include "decode.hpp"

namespace quadrat {
namespace {

bool array_kind(char letter, std::int64_t bytes, Kind* out) {
    const auto pick = [&](Kind one, Kind two, Kind four, Kind eight) {
        *out = bytes == 1 ? one : bytes == 2 ? two : bytes == 4 ? four : eight;
        return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
    };
    switch (letter) {
        case 'b':
            *out = Kind::bool_;
            return bytes == 1;
        case 'i':
            return pick(Kind::int8, Kind::int16, Kind::int32, Kind::int64);
        case 'u':
            return pick(Kind::uint8, Kind::uint16, Kind::uint32, Kind::uint64);
        case 'f':
            *out = bytes == 4 ? Kind::float32 : Kind::float64;
            return bytes == 4 || bytes == 8;
        default:
            return false;
    }
}

bool view_array(PyObject* object, Row* row) {
    const auto array = py::reinterpret_borrow<py::array>(object);
    const py::dtype dtype = array.dtype();
    const char order = dtype.byteorder();
    if (array.ndim() != 1 || (order != '=' && order != '|') ||
        !array_kind(dtype.kind(), dtype.itemsize(), &row->kind)) {
        return false;
    }
    row->data = array.data();
    row->length = array.shape(0);
    row->stride = array.strides(0);
    return true;
}

bool view_tensor(PyObject* object, const Interop& interop, Row* row) {
    if (interop.exchange() == nullptr) {
        const py::object seen = interop.describe()(py::handle(object));
        if (seen.is_none()) {
            return false;
        }
        const auto fields = seen.cast<std::tuple<std::uintptr_t, std::int64_t, std::int64_t, int>>();
        row->data = reinterpret_cast<const void*>(std::get<0>(fields));
        row->length = std::get<1>(fields);
        row->stride = std::get<2>(fields);
        row->kind = static_cast<Kind>(std::get<3>(fields));
        return true;
    }
    dlpack::Tensor view{};
    if (interop.exchange()->view_of_object(object, &view) != 0) {
        PyErr_Clear();  // sparse, meta and other tensors without memory of their own: the reference's business
        return false;
    }
    const char letter = view.dtype.code == dlpack::signed_integer     ? 'i'
                        : view.dtype.code == dlpack::unsigned_integer ? 'u'
                        : view.dtype.code == dlpack::floating         ? 'f'
                        : view.dtype.code == dlpack::boolean          ? 'b'
                                                                      : '?';
    if (view.device.type != dlpack::device_cpu || view.ndim != 1 || view.dtype.lanes != 1 ||
        !array_kind(letter, view.dtype.bits / 8, &row->kind)) {
        return false;
    }
    // The exchange shows the stored numbers: a lazily negated view (x.imag of a conjugate) means others, and a tensor
    // that records gradients is more than its numbers.
    const py::handle tensor(object);
    if (letter == 'f' && (tensor.attr("requires_grad").cast<bool>() || tensor.attr("is_neg")().cast<bool>())) {
        return false;
    }
    row->data = static_cast<const char*>(view.data) + view.byte_offset;
    row->length = view.shape[0];
    row->stride = (view.strides == nullptr ? 1 : view.strides[0]) * static_cast<std::int64_t>(item_size(row->kind));
    return true;
}

}  // namespace

py::object item_of(PyObject* sequence, Py_ssize_t i) {
    auto item = py::reinterpret_steal<py::object>(PySequence_GetItem(sequence, i));
    if (!item) {
        PyErr_Clear();
    }
    return item;
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
    if (number_kind(object, &row->kind)) {
        row->length = 1;
        return form_number;
    }
    if (interop.is_ndarray(object)) {
        return view_array(object, row) ? form_array : form_other;
    }
    if (interop.is_tensor(object)) {
        return view_tensor(object, interop, row) ? form_tensor : form_other;
    }
    return form_other;
}

}  // namespace quadrat
