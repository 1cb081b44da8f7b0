// Python numbers to memory: copy_rows for rows that are lists or tuples.
#pragma once

#include <Python.h>

#include "../../kernels/types.hpp"

namespace quadrat {

// The kind of a Python number by its exact type (int64, float64 or bool); false for anything else.
bool number_kind(PyObject* object, Kind* out);

// Decodes `count` numbers, all of the type that `source` names (a float64 source takes ints too), into `count` elements
// of `target`. The status speaks of the position within the run. The caller keeps the objects alive. stream: past the
// caches, see stream.hpp; the caller fences.
Status decode_numbers(PyObject* const* items, std::int64_t count, Kind source, Kind target, void* out,
                      bool stream = false);

// One element of `kind` from a Python number; false for null, for anything else, and when it does not fit.
bool decode_number(PyObject* object, Kind kind, void* out);

}  // namespace quadrat
