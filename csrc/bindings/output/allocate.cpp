#include "allocate.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <limits>

#include "../../memory/block_cache.hpp"
#include "../classes.hpp"

namespace quadrat {
namespace {

// Smaller arrays own their memory, as users of ndarray.resize expect; larger ones save more than that is worth.
constexpr std::size_t smallest_shown = std::size_t{1} << 20;

// What a tensor or array keeps alive: its block and, for a tensor, the shape the exchange struct points to.
struct Owner {
    dlpack::ManagedTensor managed{};
    memory::Block block;
    std::vector<std::int64_t> shape;

    ~Owner() {
        if (block.data != nullptr) {
            memory::release(block);
        }
    }
};

// The bytes of an array of this shape; throws where no address space would do.
std::size_t byte_size(const std::vector<std::int64_t>& shape, Kind kind) {
    auto bytes = static_cast<std::int64_t>(item_size(kind));
    bool none = false;
    // Empty extents are left out of the product: libraries multiply the others all the same, for the strides.
    for (const std::int64_t extent : shape) {
        if (extent < 0 || (extent > 0 && bytes > std::numeric_limits<std::int64_t>::max() / extent)) {
            throw py::value_error("no memory holds an array of such a shape");
        }
        bytes *= extent == 0 ? 1 : extent;
        none = none || extent == 0;
    }
    return none ? 0 : static_cast<std::size_t>(bytes);
}

std::unique_ptr<Owner> acquire(std::size_t bytes) {
    auto owner = std::make_unique<Owner>();
    owner->block = memory::acquire(bytes);
    if (owner->block.data == nullptr) {
        throw std::bad_alloc();
    }
    return owner;
}

py::object empty_tensor(const Interop& interop, std::vector<std::int64_t> shape, Kind kind, void** data) {
    std::unique_ptr<Owner> owner = acquire(byte_size(shape, kind));
    owner->shape = std::move(shape);
    dlpack::ManagedTensor& managed = owner->managed;
    managed.version = {dlpack::abi_major, 0};
    managed.context = owner.get();
    managed.deleter = [](dlpack::ManagedTensor* self) { delete static_cast<Owner*>(self->context); };
    managed.tensor.data = owner->block.data;
    managed.tensor.device = {dlpack::device_cpu, 0};
    managed.tensor.ndim = static_cast<std::int32_t>(owner->shape.size());
    managed.tensor.dtype = {type_codes[static_cast<int>(kind)], static_cast<std::uint8_t>(8 * item_size(kind)), 1};
    managed.tensor.shape = owner->shape.data();
    *data = owner->block.data;
    // Ownership passes with the call, also when it fails: torch then runs the deleter itself.
    static_cast<void>(owner.release());
    void* object = nullptr;
    if (interop.exchange->tensor_to_object(&managed, &object) != 0) {
        throw py::error_already_set();
    }
    return py::reinterpret_steal<py::object>(static_cast<PyObject*>(object));
}

py::dtype numpy_dtype(Kind kind) {
    using Number = py::detail::npy_api;
    if (kind == Kind::bfloat16) {
        throw py::type_error("NumPy has no dtype bfloat16: make torch tensors, or give another dtype");
    }
    constexpr int numbers[kind_count] = {Number::NPY_BOOL_,   Number::NPY_INT8_,   Number::NPY_UINT8_,
                                         Number::NPY_INT16_,  Number::NPY_UINT16_, Number::NPY_INT32_,
                                         Number::NPY_UINT32_, Number::NPY_INT64_,  Number::NPY_UINT64_,
                                         Number::NPY_FLOAT_,  Number::NPY_DOUBLE_, numpy_half};
    return py::dtype(numbers[static_cast<int>(kind)]);
}

// An array on a cached block, which it gives back when it goes.
py::array cached_array(std::vector<std::int64_t> shape, Kind kind, std::size_t bytes) {
    std::unique_ptr<Owner> owner = acquire(bytes);
    void* const data = owner->block.data;
    const py::capsule base(owner.get(), [](void* held) { delete static_cast<Owner*>(held); });
    static_cast<void>(owner.release());
    return {numpy_dtype(kind), std::move(shape), data, base};
}

// Tensors side by side on one block of shared memory; none where they have no byte.
std::vector<Allocation> allocate_shared(const Interop& interop, const std::vector<Output>& outputs) {
    std::vector<Allocation> allocations;
    py::tuple views(outputs.size());
    std::vector<std::size_t> starts;
    starts.reserve(outputs.size());
    std::size_t total = 0;
    for (const auto& [shape, kind, trailing] : outputs) {
        const std::size_t bytes = byte_size(shape, kind);
        if (bytes > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()) - total - memory::alignment) {
            throw py::value_error("no memory holds arrays of such shapes");
        }
        views[starts.size()] = py::make_tuple(kind, total / item_size(kind), py::tuple(py::cast(shape)));
        starts.push_back(total);
        total += round_up(bytes, memory::alignment);
    }
    if (total == 0) {
        return allocations;
    }
    const auto shared = interop.make_shared(total, views).cast<py::tuple>();
    const auto tensors = shared[0].cast<py::tuple>();
    char* const data = reinterpret_cast<char*>(shared[1].cast<std::uintptr_t>());
    for (std::size_t i = 0; i < starts.size(); ++i) {
        allocations.push_back({tensors[i], data + starts[i]});
    }
    return allocations;
}

}  // namespace

Allocation allocate(const Interop& interop, Framework framework, std::vector<std::int64_t> shape, Kind kind) {
    Allocation result;
    if (framework == Framework::numpy) {
        const std::size_t bytes = byte_size(shape, kind);
        py::array array = bytes < smallest_shown || bytes > memory::largest_cached
                              ? py::array(numpy_dtype(kind), std::move(shape))
                              : cached_array(std::move(shape), kind, bytes);
        result.data = array.mutable_data();
        result.array = std::move(array);
    } else if (interop.exchange != nullptr) {
        result.array = empty_tensor(interop, std::move(shape), kind, &result.data);
    } else {
        const auto tensor = interop.make_tensor(py::tuple(py::cast(shape)), kind).cast<py::tuple>();
        result = {tensor[0], reinterpret_cast<void*>(tensor[1].cast<std::uintptr_t>())};
    }
    return result;
}

BatchMemory::BatchMemory(const Interop& interop, Framework framework, std::vector<Output> outputs)
    : interop_(interop), framework_(framework), outputs_(std::move(outputs)) {
    if (framework == Framework::torch && interop.shares()) {
        shared_ = allocate_shared(interop, outputs_);
    }
}

Allocation BatchMemory::take() {
    Output& output = outputs_.at(next_++);
    return shared_.empty() ? allocate(interop_, framework_, std::move(output.shape), output.kind)
                           : std::move(shared_.at(next_ - 1));
}

void register_allocate(py::module_& m) {
    m.def(
        "allocate",
        [](const Interop& interop, Framework torch, const std::vector<std::int64_t>& shape, Kind kind) {
            return allocate(interop, torch, shape, kind).as_tuple();
        },
        "interop"_a, "torch"_a, "shape"_a, "kind"_a);
    m.def(
        "allocate_batch",
        [](const Interop& interop, Framework torch,
           const std::vector<std::pair<std::vector<std::int64_t>, Kind>>& shapes) {
            std::vector<Output> outputs;
            outputs.reserve(shapes.size());
            for (const auto& [shape, kind] : shapes) {
                outputs.push_back({shape, kind});
            }
            BatchMemory memory(interop, torch, std::move(outputs));
            py::list result;
            for (std::size_t i = 0; i < shapes.size(); ++i) {
                result.append(memory.take().as_tuple());
            }
            return result;
        },
        "interop"_a, "torch"_a, "outputs"_a);
    m.def(
        "populate", [](Address address, std::size_t size) { return memory::populate(address, size); }, "address"_a,
        "size"_a, py::call_guard<py::gil_scoped_release>());
    m.def("cached_bytes", &memory::cached_bytes);
    m.def("trim", &memory::trim);
}

}  // namespace quadrat
