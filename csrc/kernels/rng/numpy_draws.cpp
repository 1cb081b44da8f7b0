#include <cmath>
#include <numeric>
#include <utility>

#include "draws.hpp"

namespace quadrat::rng {
namespace {

// NumPy draws binomial(1, p) by inversion, on the smaller side of 1/2.
class Trial {
public:
    explicit Trial(double p)
        : p_(p <= 0.5 ? p : 1.0 - p),
          flipped_(p > 0.5),
          zero_(std::exp(std::log1p(-p_))),
          one_(p_ * zero_ / (1.0 - p_)) {}

    bool operator()(const BitGenerator& bits) const {
        double u = bits.next_double(bits.state);
        while (u > zero_ && u - zero_ > one_) {  // past both outcomes, by rounding alone: it draws anew
            u = bits.next_double(bits.state);
        }
        return (u > zero_) != flipped_;
    }

private:
    double p_;
    bool flipped_;
    double zero_;  // the probability of a 0
    double one_;
};

std::uint32_t mask_of(std::uint32_t most) {
    std::uint32_t mask = most;
    for (unsigned shift = 1; shift < 32; shift *= 2) {
        mask |= mask >> shift;
    }
    return mask;
}

// An integer of 0 ... most by masked rejection.
std::uint32_t masked(const BitGenerator& bits, std::uint32_t most, std::uint32_t mask) {
    std::uint32_t value = bits.next_uint32(bits.state) & mask;
    while (value > most) {
        value = bits.next_uint32(bits.state) & mask;
    }
    return value;
}

// The same by multiplication (Lemire, 2019).
std::uint32_t multiplied(const BitGenerator& bits, std::uint32_t most) {
    const std::uint32_t range = most + 1;
    std::uint64_t product = std::uint64_t{bits.next_uint32(bits.state)} * range;
    auto rest = static_cast<std::uint32_t>(product);
    if (rest < range) {
        const std::uint32_t limit = (0xFFFFFFFFU - most) % range;
        while (rest < limit) {
            product = std::uint64_t{bits.next_uint32(bits.state)} * range;
            rest = static_cast<std::uint32_t>(product);
        }
    }
    return static_cast<std::uint32_t>(product >> 32);
}

}  // namespace

std::int64_t NumpyDraws::trials(double p, const std::uint8_t* eligible, std::int64_t count, std::int64_t* positions) {
    const Trial trial(p), none(0.0);
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        positions[found] = i;  // `found` is at most the token's own number: there is room
        if (eligible[i] == 1 && p != 0.0) {
            found += trial(bits_) ? 1 : 0;
        } else if (legacy_) {
            none(bits_);
        }
    }
    return found;
}

void NumpyDraws::trials_at(double p, std::int64_t count, Span<const std::int64_t> positions, std::uint8_t* hit) {
    const Trial trial(p);
    const bool draws = legacy_ || p != 0.0;
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const bool success = draws && trial(bits_);
        if (at < positions.size && positions[at] == i) {
            hit[at++] = success ? 1 : 0;
        }
    }
}

void NumpyDraws::integers_at(std::int64_t high, std::int64_t count, Span<const std::int64_t> positions,
                             std::int64_t* out) {
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t value = below(high);
        if (at < positions.size && positions[at] == i) {
            out[positions[at++]] = value;
        }
    }
}

std::int64_t NumpyDraws::below(std::int64_t n) {
    const auto most = static_cast<std::uint32_t>(n - 1);
    if (most == 0) {
        return 0;
    }
    return legacy_ ? masked(bits_, most, mask_of(most)) : multiplied(bits_, most);
}

void NumpyDraws::permutation(std::int64_t n, std::int64_t* out) {
    std::iota(out, out + n, std::int64_t{0});
    for (std::int64_t i = n - 1; i > 0; --i) {  // lists are shuffled by masked rejection in either generator
        const auto most = static_cast<std::uint32_t>(i);
        std::swap(out[i], out[masked(bits_, most, mask_of(most))]);
    }
}

}  // namespace quadrat::rng
