#include "block_cache.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#endif

namespace quadrat::memory {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t slots = 64;

struct Busy {
    std::atomic_flag held = ATOMIC_FLAG_INIT;

    bool try_lock() { return !held.test_and_set(std::memory_order_acquire); }
    void unlock() { held.clear(std::memory_order_release); }
};

// Waiting blocks, the longest waiting first.
struct Cache {
    Busy busy;
    std::array<Block, slots> blocks{};
    std::size_t count = 0;
    std::size_t bytes = 0;
    std::size_t releases = 0;

    Block take(std::size_t index) {
        const Block block = blocks[index];
        std::move(blocks.begin() + static_cast<std::ptrdiff_t>(index) + 1,
                  blocks.begin() + static_cast<std::ptrdiff_t>(count),
                  blocks.begin() + static_cast<std::ptrdiff_t>(index));
        --count;
        bytes -= block.size;
        return block;
    }
};

// Never destroyed: tensors may be freed while the process exits.
Cache& cache() {
    static Cache& instance = *new Cache;
    return instance;
}

Block allocate(std::size_t size) {
    void* const data = ::operator new(size, std::align_val_t{alignment}, std::nothrow);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    // One fault for 2 MiB instead of 512. Advice only: where it is refused, small pages serve.
    if (size >= 2 * huge_page && data != nullptr) {
        constexpr std::uintptr_t page = 4096;
        const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(data) + page - 1) & ~(page - 1);
        const std::uintptr_t last = (reinterpret_cast<std::uintptr_t>(data) + size) & ~(page - 1);
        madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
    }
#endif
    return {data, data == nullptr ? 0 : size, 0};
}

void free_block(Block block) { ::operator delete(block.data, std::align_val_t{alignment}); }

// Blocks that are freed at the end of a scope, when the guard that was taken inside it is free again.
struct Evicted {
    std::array<Block, slots> blocks{};
    std::size_t count = 0;

    void add(Block block) { blocks[count++] = block; }
    ~Evicted() { std::for_each(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(count), free_block); }
};

}  // namespace

Block acquire(std::size_t size) {
    size = std::max(size, alignment);
    if (size >= smallest_cached && size <= largest_cached) {
        Cache& all = cache();
        const std::unique_lock guard(all.busy, std::try_to_lock);
        if (guard) {
            // The smallest that is large enough, but none that would waste more than it holds.
            std::size_t best = slots;
            for (std::size_t i = 0; i < all.count; ++i) {
                const std::size_t have = all.blocks[i].size;
                if (have >= size && have / 2 <= size && (best == slots || have < all.blocks[best].size)) {
                    best = i;
                }
            }
            if (best != slots) {
                return all.take(best);
            }
        }
    }
    return allocate(size);
}

void release(Block block) {
    Evicted evicted;
    Cache& all = cache();
    const std::unique_lock guard(all.busy, std::try_to_lock);
    if (!guard || block.size < smallest_cached || block.size > largest_cached) {
        evicted.add(block);
        return;
    }
    block.waiting = ++all.releases;
    while (all.count == slots || all.bytes + block.size > most_cached ||
           (all.count > 0 && all.releases - all.blocks[0].waiting > most_passed_over)) {
        evicted.add(all.take(0));
    }
    all.blocks[all.count++] = block;
    all.bytes += block.size;
}

std::size_t cached_bytes() {
    Cache& all = cache();
    const std::unique_lock guard(all.busy, std::try_to_lock);
    return guard ? all.bytes : 0;
}

void trim() {
    Evicted evicted;
    Cache& all = cache();
    const std::unique_lock guard(all.busy, std::try_to_lock);
    while (guard && all.count > 0) {
        evicted.add(all.take(0));
    }
}

bool populate([[maybe_unused]] void* data, [[maybe_unused]] std::size_t size) {
#if defined(__linux__)
    constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, of Linux 5.14: newer than many headers
    return madvise(data, size, populate_write) == 0 || errno != EFAULT;
#else
    return true;
#endif
}

}  // namespace quadrat::memory
