// Pages of a fresh mapping, all in one call: their faults, one by one, cost more than the writes that raise them.
#pragma once

#include <cstddef>

namespace quadrat::memory {

// Maps the pages of `size` bytes at `data`, which starts a page, for writing. False where nothing is behind them, so
// that writing would end the process; true where the system does not say.
bool populate(void* data, std::size_t size);

}  // namespace quadrat::memory
