// How a kernel that may take seconds can be ended: now and then it calls a function of its caller's, which may throw.
#pragma once

#include <algorithm>
#include <cstdint>

namespace quadrat {

class Watch {
public:
    using Look = void (*)();

    // A null pointer: nobody ends the kernel.
    explicit Watch(Look look) : look_(look) {}

    // Counts steps of work, of some nanoseconds each, and looks where there have been many.
    void after(std::int64_t steps) {
        steps_ += steps;
        if (steps_ >= many) {
            steps_ = 0;
            if (look_ != nullptr) {
                look_();
            }
        }
    }

    // Calls body(begin, end) for one stretch of 0 ... size after the other.
    template <typename Body>
    void stretches(std::int64_t size, const Body& body) {
        for (std::int64_t begin = 0; begin < size; begin += many) {
            const std::int64_t end = std::min(begin + many, size);
            body(begin, end);
            after(end - begin);
        }
    }

private:
    static constexpr std::int64_t many = std::int64_t{1} << 22;
    Look look_;
    std::int64_t steps_ = 0;
};

}  // namespace quadrat
