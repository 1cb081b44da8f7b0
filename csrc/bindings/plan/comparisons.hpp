// Which batches of one kind are compared with those of the reference, where its code is unknown.
#pragma once

#include <array>
#include <atomic>

#include "../input/columns.hpp"

namespace quadrat {

class Comparisons {
public:
    // Counts a batch. True for the first nine, for those whose number is a power of two, and for the first one of each
    // size: the bit lengths of its rows and width, whether a row has one token, a number is below 0, a mask has a 0.
    bool is_due(const Columns& columns, const py::tuple& names) const;

private:
    mutable std::atomic<std::int64_t> made_{0};
    mutable std::array<std::atomic<std::uint64_t>, 32> seen_{};  // a bit for each size
};

}  // namespace quadrat
