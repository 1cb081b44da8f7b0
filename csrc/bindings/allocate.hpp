// Output arrays. Tensors and large NumPy arrays stand on memory of the block cache: no page that was just given back to
// the kernel. Tensors are made through torch's DLPack exchange API where torch has it, without a call into Python.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

#include "../kernels/kind.hpp"
#include "interop.hpp"

namespace quadrat {

namespace py = pybind11;

enum class Framework : std::uint8_t { numpy, torch };

struct Allocation {
    py::object array;
    void* data = nullptr;
};

// An uninitialised, contiguous array in host memory. Throws bad_alloc, or ValueError for a shape no memory can hold.
Allocation allocate(const Interop& interop, Framework framework, std::vector<std::int64_t> shape, Kind kind);

}  // namespace quadrat
