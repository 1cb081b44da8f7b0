// The part of the DLPack ABI (version 1) through which torch >= 2.10 shows a tensor to C code: a struct of function
// pointers in a capsule, torch.Tensor.__dlpack_c_exchange_api__. Order and widths are the ABI's; the names are ours.
#pragma once

#include <cstdint>

namespace quadrat::dlpack {

inline constexpr const char* capsule_name = "dlpack_exchange_api";
inline constexpr std::uint32_t abi_major = 1;

struct Version {
    std::uint32_t major, minor;
};

struct Device {
    std::int32_t type;  // 1 is host memory
    std::int32_t id;
};

inline constexpr std::int32_t device_cpu = 1;

struct DataType {
    std::uint8_t code, bits;
    std::uint16_t lanes;
};

enum TypeCode : std::uint8_t {
    signed_integer = 0,
    unsigned_integer = 1,
    floating = 2,
    brain_floating = 4,
    boolean = 6
};

struct Tensor {
    void* data;
    Device device;
    std::int32_t ndim;
    DataType dtype;
    std::int64_t *shape, *strides;  // strides in elements; null means contiguous
    std::uint64_t byte_offset;
};

// A tensor that owns: whoever receives it calls the deleter once.
struct ManagedTensor {
    Version version;
    void* context;
    void (*deleter)(ManagedTensor* self);
    std::uint64_t flags;
    Tensor tensor;
};

struct Header {
    Version version;
    Header* previous;
};

using Unused = void (*)();

struct ExchangeApi {
    Header header;
    Unused allocate, managed_from_object;
    // Makes the library's own tensor, a new reference, of a managed one, whose ownership passes.
    int (*tensor_to_object)(ManagedTensor* tensor, void** out_object);
    // Fills a view that lives as long as the object does; takes no reference, synchronises nothing.
    int (*view_of_object)(void* object, Tensor* out);
    Unused current_stream;
};

}  // namespace quadrat::dlpack
