// One Python object to a row: the only code that asks what kind of Python object a row is.
#include <pybind11/critical_section.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>

#include "columns.hpp"
#include "python_number.hpp"

namespace quadrat {
namespace {

bool kind_of_type(const dlpack::DataType& type, Kind* out) {
    for (int kind = 0; kind < kind_count; ++kind) {
        *out = static_cast<Kind>(kind);
        if (type_codes[kind] == type.code && 8 * item_size(*out) == type.bits) {
            return type.lanes == 1;
        }
    }
    return false;
}

// NumPy's numbers of its types up to double, which follow C's.
bool kind_of_number(int type_number, Kind* out) {
    constexpr Kind long_kind = sizeof(long) == 8 ? Kind::int64 : Kind::int32;
    constexpr Kind unsigned_long_kind = sizeof(long) == 8 ? Kind::uint64 : Kind::uint32;
    static constexpr Kind kinds[] = {Kind::bool_,  Kind::int8,    Kind::uint8,  Kind::int16,        Kind::uint16,
                                     Kind::int32,  Kind::uint32,  long_kind,    unsigned_long_kind, Kind::int64,
                                     Kind::uint64, Kind::float32, Kind::float64};
    const bool listed = type_number >= 0 && type_number < static_cast<int>(std::size(kinds));
    *out = listed ? kinds[type_number] : Kind::float16;
    return listed || type_number == numpy_half;
}

// Not inline, for the sake of rows of one dimension.
template <typename Extent>
[[gnu::noinline]] std::uint32_t deepened(const Extent* shape, int dimensions, Row* row, Trailing* trailing) {
    row->stride = static_cast<std::int64_t>(item_size(row->kind));
    trailing->assign(shape + 1, shape + dimensions);
    return form_deep;
}

// Has a row of these dimensions; of more than one, its elements must lie side by side. Returns its form.
template <typename Extent>
std::uint32_t shape_row(const Extent* shape, int dimensions, std::int64_t stride, std::uint32_t form, Row* row,
                        Trailing* trailing) {
    row->length = shape[0];
    row->stride = stride;
    return dimensions == 1 ? form : form | deepened(shape, dimensions, row, trailing);
}

bool lies_side_by_side(const dlpack::Tensor& tensor) {
    if (std::find(tensor.shape, tensor.shape + tensor.ndim, 0) != tensor.shape + tensor.ndim) {
        return true;
    }
    std::int64_t step = 1;
    for (int axis = tensor.ndim; axis-- > 0 && tensor.strides != nullptr;) {
        if (tensor.shape[axis] != 1 && tensor.strides[axis] != step) {
            return false;
        }
        step *= tensor.shape[axis];
    }
    return true;
}

// Fields are read where they lie: a py::dtype would count references of an object that all arrays share.
std::uint32_t view_array(PyObject* object, Row* row, Trailing* trailing) {
    const auto* const array = py::detail::array_proxy(object);
    const auto* const dtype = py::detail::array_descriptor_proxy(array->descr);
    if (array->nd < 1 || (array->nd > 1 && (array->flags & py::array::c_style) == 0) ||
        (dtype->byteorder != '=' && dtype->byteorder != '|') || !kind_of_number(dtype->type_num, &row->kind)) {
        return form_other;
    }
    row->data = array->data;
    return shape_row(array->dimensions, array->nd, array->strides[0], form_array, row, trailing);
}

// What the library says of a tensor: form_tensor_number for one of no dimension, form_other where its numbers are not
// what its memory holds, or not numbers alone.
std::uint32_t described_tensor(PyObject* object, const Interop& interop, Row* row, Trailing* trailing) {
    if (interop.exchange == nullptr) {
        const auto seen = py::reinterpret_steal<py::object>(PyObject_CallOneArg(interop.describe.ptr(), object));
        clear_error();
        if (!seen || seen.is_none()) {
            return form_other;
        }
        const auto [address, shape, stride, kind] =
            seen.cast<std::tuple<std::uintptr_t, Trailing, std::int64_t, Kind>>();
        *row = {reinterpret_cast<const void*>(address), 1, stride, kind};
        return shape.empty()
                   ? form_tensor_number
                   : shape_row(shape.data(), static_cast<int>(shape.size()), stride, form_tensor, row, trailing);
    }
    dlpack::Tensor view{};
    if (interop.exchange->view_of_object(object, &view) != 0) {
        clear_error();  // sparse, meta and other tensors without memory of their own: the reference's business
        return form_other;
    }
    if (view.device.type != dlpack::device_cpu || !kind_of_type(view.dtype, &row->kind) ||
        (view.ndim > 1 && !lies_side_by_side(view))) {
        return form_other;
    }
    // The exchange shows the stored numbers: a lazily negated view (x.imag of a conjugate) means others, and a tensor
    // that records gradients, or may have a tangent, is more than its numbers.
    const py::handle tensor(object);
    if (is_float(row->kind) && (interop.in_dual_level() || tensor.attr("requires_grad").cast<bool>() ||
                                interop.is_negative(tensor).cast<bool>())) {
        return form_other;
    }
    const auto item = static_cast<std::int64_t>(item_size(row->kind));
    row->data = static_cast<const char*>(view.data) + view.byte_offset;
    row->length = 1;
    row->stride = item;
    const std::int64_t stride = view.ndim == 0 || view.strides == nullptr ? item : view.strides[0] * item;
    return view.ndim == 0 ? form_tensor_number : shape_row(view.shape, view.ndim, stride, form_tensor, row, trailing);
}

// Zero tensors, functional ones and those whose storage was given back say that they are on the CPU, at no address.
std::uint32_t view_tensor(PyObject* object, const Interop& interop, Row* row, Trailing* trailing) {
    const std::uint32_t form = described_tensor(object, interop, row, trailing);
    const bool has_elements = row->length > 0 && ((form & form_deep) == 0 || elements_of(*trailing) != 0);
    return row->data == nullptr && has_elements ? static_cast<std::uint32_t>(form_other) : form;
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

// A list of lists, by the first ones alone: whether the others are as long is seen when they are read.
[[gnu::noinline]] std::uint32_t view_nested(py::object inner, std::uint32_t form, Row* row, Trailing* trailing) {
    constexpr std::size_t most_dimensions = 32;  // a list may hold itself
    trailing->clear();
    while (inner && is_sequence(inner) && trailing->size() < most_dimensions) {
        trailing->push_back(PySequence_Size(inner.ptr()));
        inner = item_of(inner.ptr(), 0);
    }
    const std::int64_t elements = elements_of(*trailing);
    const bool fits = elements > 0 && row->length <= std::numeric_limits<std::int64_t>::max() / elements;
    return fits && inner && !trailing->empty() && number_kind(inner.ptr(), &row->kind) ? form | form_deep : form_other;
}

}  // namespace

py::object item_of_any(PyObject* sequence, Py_ssize_t i) {
    // CPython 3.13 exchanges items of a list while others read them, unless these hold the lock.
    const bool shared = free_threaded && PyList_CheckExact(sequence);
    const py::scoped_critical_section lock{shared ? py::handle(sequence) : py::handle()};
    auto item = py::reinterpret_steal<py::object>(PySequence_GetItem(sequence, i));
    if (!item) {
        clear_error();
    }
    return item;
}

py::object as_it_is_now(py::object sequence) {
    return free_threaded && PyList_CheckExact(sequence.ptr()) ? taken(PyList_AsTuple(sequence.ptr()))
                                                              : std::move(sequence);
}

std::uint32_t view(PyObject* object, const Interop& interop, Row* row, Trailing* trailing) {
    *row = Row{};
    std::uint32_t form = form_other;
    if (is_sequence(object)) {
        form = PyList_CheckExact(object) ? form_list : form_tuple;
        row->length = PySequence_Fast_GET_SIZE(object);
        if (row->length == 0) {
            return form;
        }
        py::object first = item_of(object, 0);
        if (first && number_kind(first.ptr(), &row->kind)) {
            return form;
        }
        form = view_nested(std::move(first), form, row, trailing);
    } else if (interop.is_ndarray(object)) {
        form = view_array(object, row, trailing);
    } else if (number_kind(object, &row->kind)) {
        row->length = 1;
        return form_number;
    } else if (interop.is_tensor(object)) {
        form = view_tensor(object, interop, row, trailing);
    } else if (view_scalar(object, interop, row)) {
        form = form_scalar;
    } else if (const Base base = interop.base_of(object); base != Base::none) {
        form = base == Base::array ? view_array(object, row, trailing) : view_tensor(object, interop, row, trailing);
        form = (form & (form_array | form_tensor)) != 0 ? form | form_derived : form_other;
    }
    if (form == form_other) {
        *row = Row{};
    }
    return form;
}

}  // namespace quadrat
