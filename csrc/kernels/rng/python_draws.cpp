#include <utility>

#include "draws.hpp"

namespace quadrat::rng {

std::int64_t PythonDraws::below(std::int64_t n) {
    int bits = 1;  // n > 0
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
    int bits = 1;  // of i + 1, which falls: counted once
    for (std::int64_t i = 0; i < n; ++i) {
        out[i] = i;
        bits += (n >> bits) != 0 ? 1 : 0;
    }
    for (std::int64_t i = n - 1; i > 0; --i) {
        bits -= (i + 1) >> (bits - 1) == 0 ? 1 : 0;
        std::int64_t j = engine_.next() >> (32 - bits);
        while (j > i) {
            j = engine_.next() >> (32 - bits);
        }
        std::swap(out[i], out[j]);
    }
}

}  // namespace quadrat::rng
