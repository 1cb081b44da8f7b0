// Output arrays. Tensors and large NumPy arrays stand on memory of the block cache: no page that was just given back to
// the kernel. Tensors are made through torch's DLPack exchange API where torch has it, without a call into Python. In a
// DataLoader's worker the tensors of a batch stand on one block of shared memory, so that sending them copies nothing.
#pragma once

#include "../input/interop.hpp"

namespace quadrat {

struct Allocation {
    py::object array;
    void* data = nullptr;

    // (array, address)
    py::tuple as_tuple() const { return py::make_tuple(array, reinterpret_cast<std::uintptr_t>(data)); }
};

struct Output {
    std::vector<std::int64_t> shape;
    Kind kind;
    std::size_t trailing = 0;  // how many of its dimensions are those of one token

    // The tokens of its rows.
    std::int64_t extent() const { return shape[shape.size() - 1 - trailing]; }
};

// An uninitialised array in host memory that is not shared. Throws bad_alloc, or ValueError for an impossible shape.
Allocation allocate(const Interop& interop, Framework framework, std::vector<std::int64_t> shape, Kind kind);

// The outputs of a batch, which may be sent: shared ones are allocated together, others when they are taken.
class BatchMemory {
public:
    // Throws RuntimeError where shared memory has no room.
    BatchMemory(const Interop& interop, Framework framework, std::vector<Output> outputs);

    // The next of the outputs, and its memory; as `allocate`.
    const Output& next() const { return outputs_.at(next_); }
    Allocation take();

private:
    const Interop& interop_;
    Framework framework_;
    std::vector<Output> outputs_;
    std::vector<Allocation> shared_;
    std::size_t next_ = 0;
};

}  // namespace quadrat
