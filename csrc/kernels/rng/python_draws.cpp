#include <utility>

#include "draws.hpp"

namespace quadrat::rng {

std::int64_t PythonDraws::below(std::int64_t n) {
    int bits = 0;
    while (bits < 32 && (n >> bits) != 0) {
        ++bits;
    }
    std::int64_t value = engine_.next() >> (32 - bits);
    while (value >= n) {
        value = engine_.next() >> (32 - bits);
    }
    return value;
}

void PythonDraws::permutation(std::int64_t n, std::int64_t* out) {
    for (std::int64_t i = 0; i < n; ++i) {
        out[i] = i;
    }
    for (std::int64_t i = n - 1; i > 0; --i) {
        std::swap(out[i], out[below(i + 1)]);
    }
}

}  // namespace quadrat::rng
