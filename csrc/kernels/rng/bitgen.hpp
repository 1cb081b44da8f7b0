// NumPy's bit generators as their C interface shows them: four functions and what they work on. The struct is part of
// NumPy's stable ABI (the capsule "BitGenerator" of every bit generator), declared here in our own words.
#pragma once

#include <cstdint>

namespace quadrat::rng {

struct BitGenerator {
    void* state;
    std::uint64_t (*next_uint64)(void* state);
    std::uint32_t (*next_uint32)(void* state);
    double (*next_double)(void* state);
    std::uint64_t (*next_raw)(void* state);
};

}  // namespace quadrat::rng
