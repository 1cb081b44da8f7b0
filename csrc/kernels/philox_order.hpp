// philox_order: a random order of rows that depends on (seed, epoch, stream) alone, so that every process of a run
// makes the same one and an epoch is made again without those before it. The shuffle of Fisher and Yates, whose draws
// are words of Philox: all draws are independent, and vectors make 64 of them at a time.
#pragma once

#include <cstdint>

#include "span.hpp"
#include "status.hpp"
#include "watch.hpp"

namespace quadrat {

// Writes 0 ... out.size - 1 in random order. Streams are orders that have nothing to do with each other.
// Code::bad_argument: for 2^32 rows and more.
Status philox_order(std::uint64_t seed, std::uint32_t epoch, std::uint32_t stream, Span<std::int64_t> out,
                    Watch& watch);

}  // namespace quadrat
