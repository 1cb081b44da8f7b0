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

// The outputs of a batch, which may be sent. Where they are shared, all are announced, in order, before the first is
// taken; elsewhere each is allocated when it is taken.
class BatchMemory {
public:
    BatchMemory(const Interop& interop, Framework framework);

    bool shares() const { return shares_; }
    void expect(Output output) {
        if (shares_) {
            expected_.push_back(std::move(output));
        }
    }
    // As `allocate`; throws RuntimeError where shared memory has no room.
    Allocation take(Output output);

private:
    const Interop& interop_;
    Framework framework_;
    bool shares_;
    std::vector<Output> expected_;
    std::vector<Allocation> made_;
    std::size_t next_ = 0;
};

}  // namespace quadrat
