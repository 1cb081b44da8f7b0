// Output memory that is used again: freed blocks wait here for the next batch, up to a fixed total and for a while.
// Through the allocator, large blocks would be faulted in page by page for each batch, which costs more than filling
// them; for smaller ones it would first join all the pieces that the features left.
//
// Process-wide: tensors outlive modules, and any thread may free one. The guard is tried, never waited for: a thread
// that does not get it uses the allocator, so that a fork in the wrong moment cannot block a child.
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

// Maps the pages of `size` bytes at `data`, which starts a page, for writing: all in one call, because their faults,
// one by one, cost more than the writes that raise them. False where nothing is behind them, so that writing would end
// the process; true where the system does not say.
bool populate(void* data, std::size_t size);

}  // namespace quadrat::memory
