// What masking is told, and what is wrong with it: one check for the host's kernels and the GPU's.
#pragma once

#include <optional>
#include <tuple>

#include "../kernels/mask_tokens.hpp"
#include "../kernels/philox_mask.hpp"
#include "casters.hpp"

namespace quadrat {

// As python/quadrat/ops/_philox.py names them: seed, epoch, the probability that a token is masked, those that a masked
// one becomes the mask token or a random one, the mask token, the size of the vocabulary.
using PhiloxOptions = std::tuple<std::uint64_t, std::uint32_t, double, double, double, std::int64_t, std::int64_t>;

inline void check_vocab_size(std::int64_t size) {
    if (size < 1 || size >= most_tokens) {
        throw py::value_error(message("vocab_size must be between 1 and ", most_tokens - 1, ", not ", size));
    }
}

// How masked tokens are replaced, see Replacement; without a probability nothing is drawn for random tokens.
using ReplacementOptions = std::tuple<double, std::optional<double>, std::int64_t, std::int64_t>;

// Throws ValueError for a vocabulary that is drawn from otherwise.
inline Replacement checked_replacement(const ReplacementOptions& options) {
    const auto& [mask, random_of_rest, mask_id, vocab_size] = options;
    check_vocab_size(vocab_size);
    return {mask, random_of_rest.value_or(0.0), random_of_rest.has_value(), mask_id, vocab_size};
}

inline std::string text_of(double value) { return py::str(py::float_(value)); }

inline void check_probability(const char* name, double value) {
    if (!(value >= 0 && value <= 1)) {  // nor NaN
        throw py::value_error(message(name, " must be between 0 and 1, not ", text_of(value)));
    }
}

// Throws ValueError for options that nothing can be drawn with.
inline PhiloxMasking checked_masking(const PhiloxOptions& options) {
    const auto& [seed, epoch, p, mask, random, mask_id, vocab_size] = options;
    check_probability("mlm_probability", p);
    check_probability("mask_replace_prob", mask);
    check_probability("random_replace_prob", random);
    if (mask + random > 1) {
        throw py::value_error(message("mask_replace_prob and random_replace_prob must not exceed 1 together: ",
                                      text_of(mask), " + ", text_of(random)));
    }
    check_vocab_size(vocab_size);
    return {seed, epoch, mask_bars(p, mask, random), mask_bars(1, mask, random), mask_id, vocab_size};
}

}  // namespace quadrat
