// The bit generators of NumPy: the two that are used by default, compiled in, and any other through its functions.
#pragma once

#include <cmath>
#include <cstdint>

#include "draws.hpp"
#include "mt19937.hpp"

namespace quadrat::rng {

// Each draws a word of 32 bits, and the numerator of a real number k / 2^53.
class AnyBits {
public:
    explicit AnyBits(const BitGenerator& bits) : bits_(bits) {}

    std::uint32_t word() { return bits_.next_uint32(bits_.state); }
    // Rounded up: compares with integers as the number itself, should it have more bits.
    std::uint64_t real() { return static_cast<std::uint64_t>(std::ceil(bits_.next_double(bits_.state) * 0x1p53)); }

private:
    const BitGenerator& bits_;
};

// `numpy.random.MT19937`: its state has the layout of Mt19937.
class MtBits {
public:
    explicit MtBits(const BitGenerator& bits) : engine_(*static_cast<Mt19937*>(bits.state)) {}

    static bool knows(const BitGenerator& bits) {
        const int used = static_cast<const Mt19937*>(bits.state)->used;
        return used >= 0 && used <= Mt19937::size;
    }

    std::uint32_t word() { return engine_.next(); }
    std::uint64_t real() {
        const std::uint64_t high = word() >> 5;
        return high << 26 | word() >> 6;
    }
    // How many reals can be had before the state is renewed, `most` or fewer; renews a state that is used up.
    int reals_at_hand(std::int64_t most);
    // The next n of them, as they are at hand.
    void reals(int n, std::uint64_t* out);
    // Takes back the last n of them.
    void take_back(int n) { engine_.used -= 2 * n; }

private:
    Mt19937& engine_;
};

#ifdef __SIZEOF_INT128__
// `numpy.random.PCG64`: PCG XSL RR 128/64 (O'Neill, 2014). Of each 64 bits the lower half is the first word of 32, and
// the upper half is kept for the next.
class PcgBits {
public:
    explicit PcgBits(const BitGenerator& bits) : state_(*static_cast<State*>(bits.state)) {}

    static bool knows(const BitGenerator& bits) {
        const int kept = static_cast<const State*>(bits.state)->has_word;
        return kept == 0 || kept == 1;
    }

    std::uint32_t word() {
        if (state_.has_word != 0) {
            state_.has_word = 0;
            return state_.word;
        }
        const std::uint64_t bits = next();
        state_.has_word = 1;
        state_.word = static_cast<std::uint32_t>(bits >> 32);
        return static_cast<std::uint32_t>(bits);
    }
    std::uint64_t real() { return next() >> 11; }

private:
    __extension__ typedef unsigned __int128 Wide;  // NOLINT(modernize-use-using): `using` takes no __extension__
    struct Generator {
        Wide state, increment;
    };
    struct State {
        Generator* generator;
        int has_word;
        std::uint32_t word;
    };

    std::uint64_t next() {
        constexpr Wide multiplier = (Wide{2549297995355413924U} << 64) + Wide{4865540595714422341U};
        Generator& generator = *state_.generator;
        generator.state = generator.state * multiplier + generator.increment;
        const auto high = static_cast<std::uint64_t>(generator.state >> 64);
        const std::uint64_t mixed = high ^ static_cast<std::uint64_t>(generator.state);
        const auto turn = static_cast<unsigned>(high >> 58);
        return mixed >> turn | mixed << ((64 - turn) & 63);
    }

    State& state_;
};
#endif

}  // namespace quadrat::rng
