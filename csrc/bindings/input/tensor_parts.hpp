// Where a torch.Tensor keeps what a view of it asks for: object, implementation, storage, data, each a pointer away
// from the one before and cold in a batch that was just made. It serves to ask for the parts of many tensors at once,
// never to read a tensor: that is the exchange API's part.
#pragma once

#include <cstdint>
#include <cstring>

namespace quadrat {

// In each of the three the pointer to the next follows a header of two words. Whether it does in the installed torch is
// tried with a tensor, see Interop::learn_tensor.
inline const char* next_part(const void* part) {
    const char* next = nullptr;
    std::memcpy(&next, static_cast<const char*>(part) + 16, sizeof next);
    return next;
}

}  // namespace quadrat
