// Batches that are known to go to the reference: what a decision to fall back looks like when it is remembered.
//
// The reference is always right, so what is remembered here can only cost speed. It is forgotten where a batch might
// take the fast way after all.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>

#include "guard.hpp"

namespace quadrat {

namespace py = pybind11;

// What a runner returns in place of a batch that the reference is to make: `NotImplemented`.
inline py::object to_the_reference() { return py::reinterpret_borrow<py::object>(Py_NotImplemented); }

// How often a decision that failed is tried again. Batches of one kind may fail by what their rows hold: a float among
// ints. After a failure the next batch of this kind goes to the reference at once, after the second failure the next
// three, and so on; a batch that succeeds forgives all.
class Retries {
public:
    // Whether this batch is left to the reference.
    bool skips() {
        if (left_ == 0) {
            return false;
        }
        --left_;
        return true;
    }
    void failed() { left_ = next_ = static_cast<std::uint8_t>(std::min(2 * next_ + 1, most)); }
    void succeeded() { next_ = 0; }

private:
    static constexpr int most = 63;
    std::uint8_t next_ = 0, left_ = 0;  // written with the GIL held
};

// Collators that fall back whatever a batch holds, as long as some facts hold.
class KnownFallback {
public:
    static constexpr const char* runner_name = "quadrat.known_fallback";

    explicit KnownFallback(const py::tuple& facts) : guard_(facts) {}

    // `NotImplemented` for a list or tuple of features; None for features in another form, or where a fact has changed.
    py::object run(const py::handle& subject, const py::object& features) const;

private:
    Guard guard_;
};

}  // namespace quadrat
