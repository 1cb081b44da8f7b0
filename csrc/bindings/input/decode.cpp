#include <algorithm>

#include "../../kernels/bytes.hpp"
#include "../../kernels/convert.hpp"
#include "../../kernels/simd.hpp"
#include "python_number.hpp"

namespace quadrat {
namespace {

constexpr std::int64_t small_block = 16;
constexpr std::int64_t chunk = 256;

// Decodes whole blocks from the front for as long as every item is a cached small int; returns how many items.
// A block that holds another item leaves rubbish in `out`, which the caller overwrites.
QUADRAT_CLONES std::int64_t decode_small_ints(PyObject* const* items, std::int64_t count, std::uintptr_t base,
                                              std::uintptr_t bytes, std::int64_t* out) {
    std::int64_t done = 0;
    for (; done + small_block <= count; done += small_block) {
        std::uint64_t outside = 0;
        for (std::int64_t k = 0; k < small_block; ++k) {
            const std::uintptr_t distance = reinterpret_cast<std::uintptr_t>(items[done + k]) - base;
            outside |= static_cast<std::uint64_t>(distance >= bytes);
            out[done + k] = static_cast<std::int64_t>(distance / SmallInts::stride) + SmallInts::first;
        }
        if (outside != 0) {
            break;
        }
    }
    return done;
}

Status decode_int(PyObject* object, std::int64_t position, std::int64_t* out) {
    if (read_compact_int(object, out)) {
        return {};
    }
    if (!PyLong_CheckExact(object)) {
        return {Code::wrong_type, -1, position};
    }
    int overflow = 0;
    *out = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow == 0 ? Status{} : Status{Code::out_of_range, -1, position};
}

Status decode_ints(PyObject* const* items, std::int64_t count, std::int64_t* out) {
    static const SmallInts small = SmallInts::find();
    std::int64_t i = 0;
    while (i < count) {
        i += decode_small_ints(items + i, count - i, small.base, small.bytes, out + i);
        // Where large ints are, more of them follow: a stretch one by one before the next try.
        for (const std::int64_t stop = std::min(count, i + 4 * small_block); i < stop; ++i) {
            if (const Status status = decode_int(items[i], i, out + i); !status) {
                return status;
            }
        }
    }
    return {};
}

// Whether NumPy makes a number of an int: beyond 64 bits it makes an array of objects.
bool has_64_bits(PyObject* object) {
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow > 0) {
        PyLong_AsUnsignedLongLong(object);
        overflow = PyErr_Occurred() != nullptr ? 1 : 0;
        clear_error();
    }
    return overflow == 0;
}

// wide: takes ints of any size, as torch does.
Status decode_floats(PyObject* const* items, std::int64_t count, bool wide, double* out) {
    constexpr double narrow = 9e18;  // less than 2^63
    for (std::int64_t i = 0; i < count; ++i) {
        if (PyFloat_CheckExact(items[i])) {
            out[i] = PyFloat_AS_DOUBLE(items[i]);
        } else if (PyLong_CheckExact(items[i])) {
            out[i] = PyLong_AsDouble(items[i]);
            if (out[i] == -1.0 && PyErr_Occurred() != nullptr) {
                clear_error();
                return {Code::out_of_range, -1, i};
            }
            if (!wide && !(out[i] > -narrow && out[i] < narrow) && !has_64_bits(items[i])) {
                return {Code::out_of_range, -1, i};
            }
        } else {
            return {Code::wrong_type, -1, i};
        }
    }
    return {};
}

Status decode_bools(PyObject* const* items, std::int64_t count, std::uint8_t* out) {
    for (std::int64_t i = 0; i < count; ++i) {
        if (!PyBool_Check(items[i])) {
            return {Code::wrong_type, -1, i};
        }
        out[i] = items[i] == Py_True ? 1 : 0;
    }
    return {};
}

// Above int64 there is uint64: for outputs of that kind, from exact ints.
Status decode_unsigned(PyObject* const* items, std::int64_t count, std::uint64_t* out) {
    for (std::int64_t i = 0; i < count; ++i) {
        if (!PyLong_CheckExact(items[i])) {
            return {Code::wrong_type, -1, i};
        }
        out[i] = PyLong_AsUnsignedLongLong(items[i]);
        if (out[i] == static_cast<std::uint64_t>(-1) && PyErr_Occurred() != nullptr) {
            clear_error();
            return {Code::out_of_range, -1, i};
        }
    }
    return {};
}

Status decode_run(PyObject* const* items, std::int64_t count, Kind source, Kind target, void* out) {
    switch (source) {
        case Kind::bool_:
            return decode_bools(items, count, static_cast<std::uint8_t*>(out));
        case Kind::float64:
            return decode_floats(items, count, target != Kind::float64, static_cast<double*>(out));
        default:
            return decode_ints(items, count, static_cast<std::int64_t*>(out));
    }
}

}  // namespace

bool number_kind(PyObject* object, Kind* out) {
    if (PyLong_CheckExact(object)) {
        *out = Kind::int64;
    } else if (PyFloat_CheckExact(object)) {
        *out = Kind::float64;
    } else if (PyBool_Check(object)) {
        *out = Kind::bool_;
    } else {
        return false;
    }
    return true;
}

Status decode_numbers(PyObject* const* items, std::int64_t count, Kind source, Kind target, void* out, bool stream) {
    if (source == Kind::int64 && target == Kind::uint64) {
        return decode_unsigned(items, count, static_cast<std::uint64_t*>(out));
    }
    if (source == target && !stream) {
        return decode_run(items, count, source, target, out);
    }
    const Convert convert = find_convert(source, target);
    if (convert == nullptr) {
        return {Code::no_conversion};
    }
    alignas(64) char buffer[chunk * 8];
    alignas(64) char converted[chunk * 8];
    const std::size_t item = item_size(target);
    for (std::int64_t done = 0; done < count; done += chunk) {
        const std::int64_t run = std::min(chunk, count - done);
        char* const place = static_cast<char*>(out) + static_cast<std::size_t>(done) * item;
        char* const result = source == target ? buffer : stream ? converted : place;
        Status status = decode_run(items + done, run, source, target, buffer);
        if (status && source != target && !convert(buffer, result, run)) {
            status = {Code::out_of_range, -1, -1};
        }
        if (!status) {
            status.position += status.position < 0 ? 0 : done;
            return status;
        }
        if (stream) {
            stream_copy(place, result, static_cast<std::size_t>(run) * item);
        }
    }
    return {};
}

bool decode_number(PyObject* object, Kind kind, void* out) {
    Kind source{};
    return object != nullptr && number_kind(object, &source) &&
           static_cast<bool>(decode_numbers(&object, 1, source, kind, out));
}

}  // namespace quadrat
