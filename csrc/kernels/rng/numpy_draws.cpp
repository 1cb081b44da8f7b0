#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "../simd.hpp"
#include "draws.hpp"

namespace quadrat::rng {
namespace {

QUADRAT_CLONES void pair_words(const std::uint32_t* words, int n, std::uint64_t* out) {
    for (std::int64_t i = 0; i < n; ++i) {
        const std::uint64_t high = Mt19937::temper(words[2 * i]) >> 5;
        out[i] = high << 26 | Mt19937::temper(words[2 * i + 1]) >> 6;
    }
}

// The bit generators of NumPy: the two that are used by default, compiled in, and any other through its functions.
//
// Each draws a word of 32 bits, and the numerator of a real number k / 2^53.
struct AnyBits {
    const BitGenerator& bits;

    std::uint32_t word() { return bits.next_uint32(bits.state); }
    // Rounded up: compares with integers as the number itself, should it have more bits.
    std::uint64_t real() { return static_cast<std::uint64_t>(std::ceil(bits.next_double(bits.state) * 0x1p53)); }
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
    int reals_at_hand(std::int64_t most) {
        if (engine_.used == Mt19937::size) {
            engine_.twist();
        }
        return static_cast<int>(std::min<std::int64_t>(most, (Mt19937::size - engine_.used) / 2));
    }
    // The next n of them, as they are at hand.
    void reals(int n, std::uint64_t* out) {
        pair_words(engine_.state + engine_.used, n, out);
        engine_.used += 2 * n;
    }
    // Takes back the last n of them.
    void take_back(int n) { engine_.used -= 2 * n; }

private:
    Mt19937& engine_;
};

#ifdef __SIZEOF_INT128__
// `numpy.random.PCG64`: PCG XSL RR 128/64 (O'Neill, 2014). Of 64 bits the lower half is a word, the upper half the
// next.
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

// NumPy draws binomial(1, p) by inversion, on the smaller side of 1/2: a real number is compared with the probability
// of a 0, a multiple of 2^-53 like itself, so a comparison of integers will do.
class Trial {
public:
    explicit Trial(double p) : flipped_(p > 0.5) {
        const double less = p <= 0.5 ? p : 1.0 - p;
        const double zero = std::exp(std::log1p(-less));
        zero_ = static_cast<std::uint64_t>(std::ldexp(zero, 53));
        both_ = zero_ + static_cast<std::uint64_t>(std::ldexp(less * zero / (1.0 - less), 53));
    }

    // Whether a real number is past both outcomes, by rounding alone: then another is drawn.
    bool refuses(std::uint64_t real) const { return real > both_; }
    bool succeeds(std::uint64_t real) const { return (real > zero_) != flipped_; }

    template <typename Bits>
    bool operator()(Bits& bits) const {
        std::uint64_t real = bits.real();
        while (refuses(real)) {
            real = bits.real();
        }
        return succeeds(real);
    }

private:
    bool flipped_;
    std::uint64_t zero_, both_;  // 2^53 times the probability of a 0, and of either
};

std::uint32_t mask_of(std::uint32_t most) {
    std::uint32_t mask = most;
    for (unsigned shift = 1; shift < 32; shift *= 2) {
        mask |= mask >> shift;
    }
    return mask;
}

// An integer of 0 ... most by masked rejection.
template <typename Bits>
std::uint32_t masked(Bits& bits, std::uint32_t most, std::uint32_t mask) {
    std::uint32_t value = bits.word() & mask;
    while (value > most) {
        value = bits.word() & mask;
    }
    return value;
}

// The same by multiplication (Lemire, 2019).
template <typename Bits>
std::uint32_t multiplied(Bits& bits, std::uint32_t most) {
    const std::uint32_t range = most + 1;
    std::uint64_t product = std::uint64_t{bits.word()} * range;
    auto rest = static_cast<std::uint32_t>(product);
    if (rest < range) {
        const std::uint32_t limit = (0xFFFFFFFFU - most) % range;
        while (rest < limit) {
            product = std::uint64_t{bits.word()} * range;
            rest = static_cast<std::uint32_t>(product);
        }
    }
    return static_cast<std::uint32_t>(product >> 32);
}

// One trial a token: visit(i, success). Without `eligible`, all tokens are.
template <typename Bits, typename Visit>
void one_by_one(Bits& bits, const Trial& trial, const std::uint8_t* eligible, std::int64_t count, Visit visit) {
    for (std::int64_t i = 0; i < count; ++i) {
        if (eligible == nullptr || eligible[i] == 1) {
            visit(i, trial(bits));
        } else {  // of probability 0: whatever is drawn, it fails
            bits.real();
        }
    }
}

template <typename Bits, typename Visit>
void each_trial(Bits& bits, const Trial& trial, const std::uint8_t* eligible, std::int64_t count, Visit visit) {
    one_by_one(bits, trial, eligible, count, visit);
}

QUADRAT_CLONES bool any_refused(const Trial& trial, const std::uint64_t* reals, int n) {
    bool any = false;
    for (int i = 0; i < n; ++i) {
        any |= trial.refuses(reals[i]);
    }
    return any;
}

// As many at a time as are at hand.
template <typename Visit>
void each_trial(MtBits& bits, const Trial& trial, const std::uint8_t* eligible, std::int64_t count, Visit visit) {
    std::uint64_t reals[Mt19937::size / 2];
    for (std::int64_t first = 0; first < count;) {
        const int at_hand = bits.reals_at_hand(count - first), n = std::max(at_hand, 1);
        const std::uint8_t* const those = eligible == nullptr ? nullptr : eligible + first;
        bits.reals(at_hand, reals);
        if (at_hand == 0 || any_refused(trial, reals, n)) {
            bits.take_back(at_hand);
            one_by_one(bits, trial, those, n, [&](std::int64_t i, bool success) { visit(first + i, success); });
        } else {
            for (int i = 0; i < n; ++i) {
                visit(first + i, trial.succeeds(reals[i]) && (those == nullptr || those[i] == 1));
            }
        }
        first += n;
    }
}

// A NumPy generator over a bit generator: `Generator` (integers by Lemire's method; a trial of probability 0 draws
// nothing) or the older `RandomState` (integers by masked rejection; every trial draws).
template <typename Bits>
class NumpyDraws final : public Draws {
public:
    NumpyDraws(const BitGenerator& bits, bool legacy, bool every_word)
        : bits_{bits}, legacy_(legacy), every_word_(every_word) {}

    std::int64_t trials(double p, const std::uint8_t* eligible, std::int64_t count, std::int64_t* positions) override {
        const Trial trial(p);
        std::int64_t successes = 0;
        if (legacy_) {
            each_trial(bits_, trial, eligible, count, [&](std::int64_t i, bool success) {
                positions[successes] = i;  // `successes` is at most the token's own number: there is room
                successes += success ? 1 : 0;
            });
            return successes;
        }
        for (std::int64_t i = 0; p != 0.0 && i < count; ++i) {
            positions[successes] = i;
            successes += eligible[i] == 1 && trial(bits_) ? 1 : 0;
        }
        return successes;
    }

    void trials_at(double p, std::int64_t count, Span<const std::int64_t> positions, std::uint8_t* hit) override {
        std::int64_t at = 0;
        const auto keep = [&](std::int64_t i, bool success) {
            if (at < positions.size && positions[at] == i) {
                hit[at++] = success ? 1 : 0;
            }
        };
        if (legacy_ || p != 0.0) {
            each_trial(bits_, Trial(p), nullptr, count, keep);
            return;
        }
        std::fill_n(hit, positions.size, std::uint8_t{0});
    }

    void integers_at(std::int64_t high, std::int64_t count, Span<const std::int64_t> positions,
                     std::int64_t* out) override {
        std::int64_t at = 0;
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t value = below(high);
            if (at < positions.size && positions[at] == i) {
                out[positions[at++]] = value;
            }
        }
    }

    bool draws_every_word() const override { return every_word_; }

    std::int64_t below(std::int64_t n) override {
        const auto most = static_cast<std::uint32_t>(n - 1);
        if (most == 0) {
            return 0;
        }
        return legacy_ ? masked(bits_, most, mask_of(most)) : multiplied(bits_, most);
    }

    void permutation(std::int64_t n, std::int64_t* out) override {
        std::iota(out, out + n, std::int64_t{0});
        for (std::int64_t i = n - 1; i > 0; --i) {  // lists are shuffled by masked rejection in either generator
            const auto most = static_cast<std::uint32_t>(i);
            std::swap(out[i], out[masked(bits_, most, mask_of(most))]);
        }
    }

private:
    Bits bits_;
    bool legacy_, every_word_;
};

}  // namespace

std::unique_ptr<Draws> numpy_draws(const BitGenerator& bits, KnownBits known, bool legacy, bool every_word) {
    if (known == KnownBits::mt19937 && MtBits::knows(bits)) {
        return std::make_unique<NumpyDraws<MtBits>>(bits, legacy, every_word);
    }
#ifdef __SIZEOF_INT128__
    if (known == KnownBits::pcg64 && PcgBits::knows(bits)) {
        return std::make_unique<NumpyDraws<PcgBits>>(bits, legacy, every_word);
    }
#endif
    return std::make_unique<NumpyDraws<AnyBits>>(bits, legacy, every_word);
}

}  // namespace quadrat::rng
