#include <pybind11/critical_section.h>

#include <algorithm>

#include "../classes.hpp"
#include "../input/walk.hpp"
#include "recipe.hpp"

namespace quadrat {

namespace {

constexpr std::uint64_t unknown = 0;  // no dict has this version
constexpr bool has_versions = PY_VERSION_HEX < 0x030C0000;

std::uint64_t version_of(const py::handle& dict) {
#if PY_VERSION_HEX < 0x030C0000
    return reinterpret_cast<const PyDictObject*>(dict.ptr())->ma_version_tag;
#else
    static_cast<void>(dict);
    return unknown;
#endif
}

}  // namespace

Guard::Guard(const py::tuple& facts) {
    for (const py::handle item : facts) {
        const auto fact = py::reinterpret_borrow<py::tuple>(item);
        const Check found{static_cast<Fact>(fact[0].cast<int>()), fact[1], fact[2], fact[3]};
        if (found.fact != Fact::entry && found.fact != Fact::absent) {
            const bool own = found.fact == Fact::own || found.fact == Fact::own_absent;
            (own ? own_ : others_).push_back(found);
            continue;
        }
        if (!PyDict_CheckExact(found.object.ptr())) {
            throw py::type_error("a guard looks at entries of plain dicts");
        }
        entries_.push_back(found);
        const auto same = [&](const WatchedDict& watched) { return watched.dict.is(found.object); };
        if (std::none_of(dicts_.begin(), dicts_.end(), same)) {
            dicts_.push_back({found.object, unknown});
        }
    }
}

bool Guard::dicts_unchanged(const py::handle& subject) const {
    // Versions are unique among all dicts, so the same version is the same dict.
    return (own_.empty() || (subject_version_ != unknown && subject_version_ == version_of(subject))) &&
           std::all_of(dicts_.begin(), dicts_.end(), [](const WatchedDict& watched) {
               return watched.version != unknown && watched.version == version_of(watched.dict);
           });
}

bool Guard::holds_for(const py::handle& collator) const {
    py::object subject;  // the attributes of the collator that asks; null where no fact is about it
    if (!collator.is_none()) {
        subject = py::reinterpret_steal<py::object>(PyObject_GenericGetDict(collator.ptr(), nullptr));
        if (!subject) {
            clear_error();
            return false;
        }
    }
    if (!own_.empty() && (!subject || !PyDict_CheckExact(subject.ptr()))) {
        return false;
    }
    const auto good = [&](const Check& fact) {  // sets change without their dict
        return check(fact, fact.fact == Fact::own_set ? subject.ptr() : fact.object.ptr());
    };
    if (!std::all_of(others_.begin(), others_.end(), good)) {
        return false;
    }
    if (dicts_unchanged(subject)) {
        return true;
    }
    const auto good_own = [&](const Check& fact) { return check(fact, subject.ptr()); };
    if (!std::all_of(entries_.begin(), entries_.end(), good) || !std::all_of(own_.begin(), own_.end(), good_own)) {
        return false;
    }
    if (has_versions) {  // else nothing is written that another thread reads
        for (const WatchedDict& watched : dicts_) {
            watched.version = version_of(watched.dict);
        }
        subject_version_ = own_.empty() ? unknown : version_of(subject);
    }
    return true;
}

bool Guard::check(const Check& fact, PyObject* object) {
    PyObject *const key = fact.key.ptr(), *const expected = fact.expected.ptr();
    bool same = false;
    switch (fact.fact) {
        case Fact::type:
            return reinterpret_cast<PyObject*>(Py_TYPE(object)) == expected;
        case Fact::entry:
        case Fact::own:
            same = PyDict_GetItemWithError(object, key) == expected;
            break;
        case Fact::absent:
        case Fact::own_absent:
            same = PyDict_Contains(object, key) == 0;
            break;
        case Fact::attribute:
            same = py::reinterpret_steal<py::object>(PyObject_GetAttr(object, key)).ptr() == expected;
            break;
        case Fact::items: {
            const py::scoped_critical_section lock{py::handle(object)};
            const Py_ssize_t size = PyTuple_GET_SIZE(expected);
            same = PyList_CheckExact(object) && PyList_GET_SIZE(object) == size;
            for (Py_ssize_t i = 0; same && i < size; ++i) {
                same = PyList_GET_ITEM(object, i) == PyTuple_GET_ITEM(expected, i);
            }
            break;
        }
        case Fact::own_set: {
            // Held, because another thread may put another set in its place.
            const auto set =
                object == nullptr ? py::object() : Walk::lookup(py::reinterpret_borrow<py::object>(object), key);
            same = set && PySet_CheckExact(set.ptr()) && PyObject_RichCompareBool(set.ptr(), expected, Py_EQ) == 1;
            break;
        }
        case Fact::call: {
            const auto result = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(object));
            same = result && PyObject_RichCompareBool(result.ptr(), expected, Py_EQ) == 1;
            break;
        }
    }
    if (PyErr_Occurred() != nullptr) {
        clear_error();  // a fact that cannot be looked at does not hold
        return false;
    }
    return same;
}

}  // namespace quadrat
