// Numbers that another thread may change while a kernel runs: what was checked is what is used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "bytes.hpp"

namespace quadrat {

// Copies `count` numbers. The fence keeps the compiler from reading them a second time.
inline void read_once(const std::int64_t* from, std::int64_t count, std::int64_t* to) {
    copy_bytes(to, from, static_cast<std::size_t>(count) * sizeof *to);
    std::atomic_signal_fence(std::memory_order_seq_cst);
}

inline std::int64_t read_once(const std::int64_t* from) {
    std::int64_t number;
    read_once(from, 1, &number);
    return number;
}

}  // namespace quadrat
