// Offsets and word ids as tokenizers give them: lists of pairs, or of ints and None.
#include <pybind11/critical_section.h>
#include <pybind11/numpy.h>

#include "../../kernels/prefetch.hpp"
#include "../input/python_number.hpp"
#include "../input/view.hpp"
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
    const auto as_array = py::reinterpret_steal<py::object>(PyObject_GetAttrString(object, "numpy"));
    clear_error();
    if (as_array) {
        source = as_array();
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
    const py::array_t<std::int64_t, py::array::c_style | py::array::forcecast> numbers(seen);
    std::copy(numbers.data(), numbers.data() + numbers.size(), out);
    return {};
}

Status read_number(PyObject* item, std::int64_t* out) {
    return read_compact_int(item, out) ? Status{} : decode_numbers(&item, 1, Kind::int64, Kind::int64, out);
}

// A pair of ints, one token's offsets.
Status read_pair(PyObject* item, std::int64_t* out) {
    const py::scoped_critical_section lock{PyList_CheckExact(item) ? py::handle(item) : py::handle()};
    Items pair{};
    if (!items_of(item, &pair) || pair.size != 2) {
        return {Code::wrong_type};
    }
    const Status status = read_number(pair.data[0], out);
    return status ? read_number(pair.data[1], out + 1) : status;
}

// Pairs and their ints come cold from the heap, three misses a token: those ahead are asked for meanwhile.
void ask_ahead(const Items& items, std::int64_t at) {
    constexpr std::int64_t pairs = 24, ints = 12;
    if (at + pairs < items.size) {
        prefetch(items.data[at + pairs]);
    }
    Items pair{};
    const bool readable = at + ints < items.size && !(free_threaded && PyList_CheckExact(items.data[at + ints]));
    if (readable && items_of(items.data[at + ints], &pair) && pair.size == 2) {
        prefetch(pair.data[0]);
        prefetch(pair.data[1]);
    }
}

}  // namespace

Status read_words(PyObject* row, WordFormat format, std::int64_t length, std::int64_t* out) {
    const py::object owner = as_it_is_now(py::reinterpret_borrow<py::object>(row));
    Items items{};
    if (!items_of(owner.ptr(), &items)) {
        return read_array(row, format == WordFormat::offsets ? 2 : 1, length, out);
    }
    if (items.size != length) {
        return {Code::wrong_length};
    }
    for (std::int64_t i = 0; i < length; ++i) {
        Status status;
        if (format == WordFormat::offsets) {
            ask_ahead(items, i);
            status = read_pair(items.data[i], out + 2 * i);
        } else if (items.data[i] == Py_None) {
            out[i] = -1;
        } else {
            status = read_number(items.data[i], out + i);
        }
        if (!status) {
            status.position = i;
            return status;
        }
    }
    return {};
}

}  // namespace quadrat
