// Output memory that is used again. A batch's outputs are freed within a step or two, and the next batch wants as much;
// handed back to the allocator in between, large blocks go back to the kernel and every batch pays for faulting their
// pages in anew, which costs more than filling them. For those of a few pages, the allocator first joins all the small
// pieces that were freed since, as those of the features: a walk through cold memory that takes as long as padding.
// They wait here instead, up to a fixed total and for a while.
//
// Process-wide on purpose: tensors outlive modules, and any thread may free one. The guard is a flag that is tried,
// never waited for: a thread that does not get it uses the plain allocator, so a fork in the wrong moment cannot block
// a child.
#pragma once

#include <cstddef>

namespace quadrat::memory {

struct Block {
    void* data = nullptr;
    std::size_t size = 0;     // bytes that may be used
    std::size_t waiting = 0;  // the count of releases when it was released
};

inline constexpr std::size_t alignment = 64;
inline constexpr std::size_t most_cached = std::size_t{256} << 20;  // bytes kept in all
inline constexpr std::size_t smallest_cached = std::size_t{1} << 12;
inline constexpr std::size_t largest_cached = std::size_t{128} << 20;  // larger blocks are always given back
inline constexpr std::size_t most_passed_over = 256;  // releases a block waits for its next use, at most

// A block of at least `size` bytes, aligned; data is null when there is no memory.
Block acquire(std::size_t size);
void release(Block block);

std::size_t cached_bytes();
// Gives all waiting blocks back to the allocator.
void trim();

}  // namespace quadrat::memory
