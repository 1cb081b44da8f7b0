// The values of a batch of features, held, with the misses of cold memory overlapped.
#pragma once

#include <algorithm>

#include "../../kernels/prefetch.hpp"
#include "interop.hpp"

namespace quadrat {

// How a mapping may be read: not at all, as a dict, as the dict `data`, or as the dicts `maps`, joined.
enum class Way : std::uint8_t { opaque, dict, wrapper, chain };

// The dict that a feature is or wraps; empty where a read of it might call code that is the feature's own, which the
// reference may call in another order, less often, or not at all.
class PlainDicts {
public:
    explicit PlainDicts(const Interop& interop) : interop_(interop) {}

    py::object dict_of(py::object feature);

private:
    Way way_of(PyObject* feature);
    py::object if_dict(py::object held);

    const Interop& interop_;
    py::object last_;  // the class that was asked about last
    Way last_way_ = Way::opaque;
};

// A batch of features comes cold from the heap: dict, its keys, its values, their buffers, each a miss that waits for
// the one before. Walking a block of rows level by level lets the misses of one level overlap.
class Walk {
public:
    static constexpr Py_ssize_t block = 64;

    Walk(const py::object& features, const Interop& interop) : features_(features), dicts_(interop) {}

    // The features' values, in order: take(number of the name, value). False when a feature is not a plain dict or
    // lacks a name, the batch has shrunk, or `take` says so. Comparing keys may run code of the user's, so nothing is
    // to be looked into yet.
    template <typename Take>
    bool gather(const py::tuple& names, Take take) {
        const Py_ssize_t count = PySequence_Size(features_.ptr());
        for (Py_ssize_t first = 0; first < count; first += block) {
            if (!fetch(first, std::min(block, count - first))) {
                return false;
            }
            for (const py::object& row : rows_) {
                for (std::size_t c = 0; c < names.size(); ++c) {
                    auto value = lookup(row, PyTuple_GET_ITEM(names.ptr(), static_cast<Py_ssize_t>(c)));
                    if (!value) {
                        return false;
                    }
                    const char* const object = reinterpret_cast<const char*>(value.ptr());
                    prefetch(object);
                    prefetch(object + 63);  // an object of more than a line, or across two
                    if (!take(c, std::move(value))) {
                        return false;
                    }
                }
            }
        }
        return true;
    }

    // dict[name], or empty. failed: set where a comparison of keys has raised an error, which is cleared.
    static py::object lookup(const py::object& dict, PyObject* name, bool* failed = nullptr);

private:
    bool fetch(Py_ssize_t first, Py_ssize_t count);

    const py::object& features_;
    PlainDicts dicts_;
    std::vector<py::object> rows_;
};

}  // namespace quadrat
