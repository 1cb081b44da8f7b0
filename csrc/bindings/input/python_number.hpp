// Python's numbers: to memory, as copy_rows for rows that are lists or tuples, and what they look like in CPython.
// Everything that depends on the layout of an int or a float is here.
#pragma once

#include "../casters.hpp"

namespace quadrat {

// The kind of a Python number by its exact type (int64, float64 or bool); false for anything else.
bool number_kind(PyObject* object, Kind* out);

// Decodes `count` numbers, all of the type that `source` names (a float64 source takes ints too), into elements of
// `target`. A status has the position within the run. stream: past the caches, see bytes.hpp; the caller fences.
Status decode_numbers(PyObject* const* items, std::int64_t count, Kind source, Kind target, void* out,
                      bool stream = false);

// One element of `kind` from a Python number; false for null, for anything else, and when it does not fit.
bool decode_number(PyObject* object, Kind kind, void* out);

// Ints of one digit (below 2^30 in magnitude) are read in place. True when `object` is exactly such an int.
inline bool read_compact_int(PyObject* object, std::int64_t* out) {
    if (Py_TYPE(object) != &PyLong_Type) {
        return false;
    }
#if PY_VERSION_HEX >= 0x030C0000
    const auto* const number = reinterpret_cast<const PyLongObject*>(object);
    if (!PyUnstable_Long_IsCompact(number)) {
        return false;
    }
    *out = PyUnstable_Long_CompactValue(number);
    return true;
#else
    // Up to 3.11 the sign of the size is the sign of the number, and size 0 is the number 0 (its digit may be stale).
    const Py_ssize_t size = Py_SIZE(object);
    if (static_cast<std::size_t>(size + 1) > 2) {
        return false;
    }
    *out = size * static_cast<std::int64_t>(reinterpret_cast<const PyLongObject*>(object)->ob_digit[0]);
    return true;
#endif
}

// The interpreter's cached small ints (-5 ... 256, more in later versions) lie side by side, so an address between
// theirs *is* the value: a run of masks or type ids decodes without touching a single int object.
struct SmallInts {
    static constexpr std::uintptr_t stride = sizeof(PyLongObject);
    static constexpr std::int64_t first = -5;
    std::uintptr_t base = 0;
    std::uintptr_t bytes = 0;  // 0 where the interpreter keeps them otherwise: then nothing is in range

    static SmallInts find() {
        SmallInts cache;
        constexpr long most = 4096;
        for (long value = first; value < most; ++value) {
            PyObject* const object = PyLong_FromLong(value);
            PyObject* const again = PyLong_FromLong(value);
            const auto address = reinterpret_cast<std::uintptr_t>(object);
            const bool cached = object != nullptr && object == again;
            Py_XDECREF(object);
            Py_XDECREF(again);
            if (!cached || (cache.bytes != 0 && address != cache.base + cache.bytes)) {
                break;
            }
            if (cache.bytes == 0) {
                cache.base = address;
            }
            cache.bytes += stride;
        }
        clear_error();
        return cache;
    }
};

}  // namespace quadrat
