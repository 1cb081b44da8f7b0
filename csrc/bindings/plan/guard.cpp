#include <pybind11/critical_section.h>

#include <algorithm>

#include "../classes.hpp"
#include "../input/walk.hpp"
#include "recipe.hpp"

namespace quadrat {
namespace {

using Fact = Guard::Fact;

bool is_of_collator(Fact fact) { return fact >= Fact::own; }

// Whether no code of the user's runs, and no object but the dict itself changes, when the fact is looked at.
bool is_of_dict(Fact fact) {
    return fact == Fact::entry || fact == Fact::absent || fact == Fact::own || fact == Fact::own_absent;
}

// Up to CPython 3.11 a dict's version changes with its content, to one above those of all dicts; 0: it has none.
std::uint64_t version_of(PyObject* dict) {
#if PY_VERSION_HEX < 0x030C0000
    return reinterpret_cast<const PyDictObject*>(dict)->ma_version_tag;
#else
    static_cast<void>(dict);
    return 0;
#endif
}

}  // namespace

Guard::Guard(const py::tuple& facts) {
    for (const py::handle item : facts) {
        const auto fact = py::reinterpret_borrow<py::tuple>(item);
        const Check check{static_cast<Fact>(fact[0].cast<int>()), fact[1], fact[2], fact[3]};
        if (is_of_dict(check.fact) && !is_of_collator(check.fact) && !PyDict_CheckExact(check.object.ptr())) {
            throw py::type_error("a guard looks at entries of plain dicts");
        }
        (is_of_dict(check.fact) ? entries_ : others_).push_back(check);
        asks_collator_ = asks_collator_ || is_of_collator(check.fact);
    }
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
    if (asks_collator_ && !(subject && PyDict_CheckExact(subject.ptr()))) {
        return false;
    }
    const auto place = [&](const Check& fact) { return is_of_collator(fact.fact) ? subject.ptr() : fact.object.ptr(); };
    const auto holds = [&](const Check& fact) { return check(fact, place(fact)); };
    if (!std::all_of(others_.begin(), others_.end(), holds)) {
        return false;
    }
    Versions now;
    for (const Check& fact : entries_) {
        std::uint64_t& newest = is_of_collator(fact.fact) ? now.subject : now.dicts;
        newest = std::max(newest, version_of(place(fact)));
    }
    const bool has_versions = now.dicts != 0 || now.subject != 0;
    if (has_versions && now.dicts == seen_.dicts && now.subject == seen_.subject) {
        return true;
    }
    if (!std::all_of(entries_.begin(), entries_.end(), holds)) {
        return false;
    }
    if (has_versions) {  // else nothing is written that another thread reads
        seen_ = now;
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
            const auto set = Walk::lookup(py::reinterpret_borrow<py::object>(object), key);
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
