// Offsets and word ids as tokenizers give them: lists of pairs, or of ints and None.
#include <pybind11/numpy.h>

#include "decode.hpp"
#include "labels.hpp"

namespace quadrat {
namespace {

struct Items {
    PyObject* const* data;
    Py_ssize_t size;
};

bool items_of(PyObject* object, Items* out) {
    if (PyList_CheckExact(object)) {
        *out = {reinterpret_cast<PyListObject*>(object)->ob_item, PyList_GET_SIZE(object)};
    } else if (PyTuple_Check(object)) {
        *out = {reinterpret_cast<PyTupleObject*>(object)->ob_item, PyTuple_GET_SIZE(object)};
    } else {
        return false;
    }
    return true;
}

Status read_array(PyObject* object, std::int64_t numbers_a_token, std::int64_t length, std::int64_t* out) {
    py::object source = py::reinterpret_borrow<py::object>(object);
    if (py::hasattr(source, "numpy")) {
        source = source.attr("numpy")();
    }
    if (!py::isinstance<py::array>(source)) {
        return {Code::wrong_type};
    }
    const auto seen = py::reinterpret_borrow<py::array>(source);
    if (seen.dtype().kind() != 'i' || seen.ndim() != (numbers_a_token == 2 ? 2 : 1) ||
        (numbers_a_token == 2 && seen.shape(1) != 2)) {
        return {Code::wrong_type};
    }
    if (seen.shape(0) != length) {
        return {Code::wrong_length};
    }
    const auto numbers = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>::ensure(seen);
    if (!numbers) {
        PyErr_Clear();
        return {Code::wrong_type};
    }
    std::copy(numbers.data(), numbers.data() + numbers.size(), out);
    return {};
}

}  // namespace

Status read_words(PyObject* row, WordSource source, std::int64_t length, std::int64_t* out) {
    Items items{};
    if (!items_of(row, &items)) {
        return read_array(row, source == WordSource::offsets ? 2 : 1, length, out);
    }
    if (items.size != length) {
        return {Code::wrong_length};
    }
    for (std::int64_t i = 0; i < length; ++i) {
        PyObject* const item = items.data[i];
        Status status;
        Items pair{};
        if (source == WordSource::word_ids) {
            out[i] = -1;
            status = item == Py_None ? Status{} : decode_numbers(&item, 1, Kind::int64, Kind::int64, out + i);
        } else if (items_of(item, &pair) && pair.size == 2) {
            status = decode_numbers(pair.data, 2, Kind::int64, Kind::int64, out + 2 * i);
        } else {
            status = {Code::wrong_type};
        }
        if (!status) {
            status.position = i;
            return status;
        }
    }
    return {};
}

}  // namespace quadrat
