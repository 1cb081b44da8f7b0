// How arguments, results and errors pass between Python and C++. Every file of the bindings includes it.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../kernels/types.hpp"

namespace quadrat {

namespace py = pybind11;
using namespace py::literals;

// pybind11 lets the module that loads first translate the exceptions of all. Where each module has a C++ library of its
// own, as in wheels, it does not know the exceptions of the others: each module translates its own.
inline void translate_own_exceptions() { py::register_local_exception_translator(&py::detail::translate_exception); }

// Which Python errors mean "fall back", and which are the user's business at once. Clears the error that is set, if one
// is, where it says no more than that something cannot be read here: the reference then meets it again, and raises it
// in its own words. KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError and the like are thrown on.
inline void clear_error() {
    PyObject* const type = PyErr_Occurred();
    if (type == nullptr) {
        return;
    }
    if (PyErr_GivenExceptionMatches(type, PyExc_Exception) == 0 ||
        PyErr_GivenExceptionMatches(type, PyExc_MemoryError) != 0) {
        throw py::error_already_set();
    }
    PyErr_Clear();
}

// The object of a new reference; where there is none, throws the error that Python has set.
inline py::object taken(PyObject* reference) {
    if (reference == nullptr) {
        throw py::error_already_set();
    }
    return py::reinterpret_steal<py::object>(reference);
}

// What a capsule of this name holds.
template <typename T>
T* pointer_in(const py::object& capsule, const char* name) {
    void* const pointer = PyCapsule_GetPointer(capsule.ptr(), name);
    if (pointer == nullptr) {
        throw py::error_already_set();
    }
    return static_cast<T*>(pointer);
}

// The parts of an error's text, put together; numbers are written out.
template <typename... Parts>
std::string message(const Parts&... parts) {
    const auto text = [](const auto& part) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
            return std::to_string(part);
        } else {
            return std::string(part);
        }
    };
    return (... + text(parts));
}

template <typename T>
Span<const T> span_of(const std::vector<T>& numbers) {
    return {numbers.data(), static_cast<std::int64_t>(numbers.size())};
}

// Memory that is not initialised: its pages are only there once they are written.
template <typename T>
std::unique_ptr<T[]> scratch(std::int64_t count) {
    return std::unique_ptr<T[]>(new T[static_cast<std::size_t>(std::max<std::int64_t>(0, count))]);
}

// Takes what a value holds, each object once for each time that it is held.
struct Visitor {
    visitproc visit;
    void* argument;
    int result = 0;

    template <typename... Objects>
    void operator()(const Objects&... objects) {
        (pass(objects.ptr()), ...);
    }

private:
    void pass(PyObject* object) { result = result == 0 && object != nullptr ? visit(object, argument) : result; }
};

// An address that Python gives as an int: a pointer to whatever the function reads or writes there.
struct Address {
    std::uintptr_t value = 0;

    Address() = default;
    Address(const void* pointer) : value(reinterpret_cast<std::uintptr_t>(pointer)) {}

    template <typename T>
    operator T*() const {
        return reinterpret_cast<T*>(value);
    }
};

// A kernel as Python calls it: with addresses for pointers, and (address, size) for a span.
template <typename Result, typename... Arguments>
auto by_address(Result (*kernel)(Arguments...)) {
    return [kernel](std::conditional_t<std::is_pointer_v<Arguments>, Address, Arguments>... arguments) {
        return kernel(arguments...);
    };
}

enum class Framework : std::uint8_t { numpy, torch };

// Whether threads run Python side by side, so that another one may change an object between any two reads of it.
#ifdef Py_GIL_DISABLED
inline constexpr bool free_threaded = true;
#else
inline constexpr bool free_threaded = false;
#endif

}  // namespace quadrat

namespace pybind11::detail {

// Enums of two values are bools: false is the first.
template <typename Enum>
struct bool_enum_caster {
    PYBIND11_TYPE_CASTER(Enum, const_name("bool"));

    bool load(handle source, bool convert) {
        make_caster<bool> flag;
        if (!flag.load(source, convert)) {
            return false;
        }
        value = static_cast<Enum>(static_cast<bool>(flag));
        return true;
    }

    static handle cast(Enum source, return_value_policy, handle) { return bool_(source != Enum{}).release(); }
};

template <>
struct type_caster<quadrat::Side> : bool_enum_caster<quadrat::Side> {};  // whether it is the left

template <>
struct type_caster<quadrat::Framework> : bool_enum_caster<quadrat::Framework> {};  // whether it is torch

template <>
struct type_caster<quadrat::Address> {
    PYBIND11_TYPE_CASTER(quadrat::Address, const_name("int"));

    bool load(handle source, bool convert) {
        make_caster<std::uintptr_t> number;
        if (!number.load(source, convert)) {
            return false;
        }
        value.value = static_cast<std::uintptr_t>(number);
        return true;
    }

    static handle cast(quadrat::Address address, return_value_policy, handle) { return int_(address.value).release(); }
};

template <typename T>
struct type_caster<quadrat::Span<T>> {
    PYBIND11_TYPE_CASTER(quadrat::Span<T>, const_name("tuple[int, int]"));

    bool load(handle source, bool convert) {
        make_caster<std::pair<quadrat::Address, std::int64_t>> pair;
        if (!pair.load(source, convert)) {
            return false;
        }
        const auto [address, size] = cast_op<std::pair<quadrat::Address, std::int64_t>>(pair);
        value = {address, size};
        return true;
    }
};

// Kinds are their number.
template <>
struct type_caster<quadrat::Kind> {
    PYBIND11_TYPE_CASTER(quadrat::Kind, const_name("int"));

    bool load(handle source, bool) {
        if (PyLong_CheckExact(source.ptr()) == 0) {
            return false;
        }
        int overflow = 0;
        const long number = PyLong_AsLongAndOverflow(source.ptr(), &overflow);
        if (number < 0 || number >= quadrat::kind_count) {
            return false;
        }
        value = static_cast<quadrat::Kind>(number);
        return true;
    }

    static handle cast(quadrat::Kind kind, return_value_policy, handle) {
        return PyLong_FromLong(static_cast<long>(kind));
    }
};

// A status that is ok is None, any other (code, row, position).
template <>
struct type_caster<quadrat::Status> {
    static constexpr auto name = const_name("tuple[int, int, int] | None");

    static handle cast(const quadrat::Status& status, return_value_policy, handle) {
        return (status ? object(none())
                       : object(pybind11::make_tuple(static_cast<int>(status.code), status.row, status.position)))
            .release();
    }
};

}  // namespace pybind11::detail
