// What collators draw, from whichever generator the reference would use: the same numbers, and as many of them. Each
// class is written after the algorithms of its library: torch's `bernoulli`, `randint` and `randperm` on the CPU;
// NumPy's `binomial`, `integers`/`randint` and `shuffle`; Python's `random.shuffle` and `randint`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "../types.hpp"

namespace quadrat::rng {

// MT19937 (Matsumoto and Nishimura, 1998), the engine under torch's CPU generator and Python's `random`. The words are
// made 624 at a time: most draws of a masked batch only have to be stepped over, which costs no tempering.
struct Mt19937 {
    static constexpr int size = 624;

    std::uint32_t state[size];
    int used = size;  // words of `state` given out so far; at `size` the next word needs a new state

    // A new state in place of the old one.
    void twist();

    // The word at `state[i]` as it is given out.
    static constexpr std::uint32_t temper(std::uint32_t word) {
        word ^= word >> 11;
        word ^= (word << 7) & 0x9D2C5680U;
        word ^= (word << 15) & 0xEFC60000U;
        return word ^ (word >> 18);
    }

    std::uint32_t next() {
        if (used == size) {
            twist();
        }
        return temper(state[used++]);
    }

    // Passes `count` words on, untempered: visit(first, words, n) for words first ... first + n - 1 of them.
    template <typename Visit>
    void for_words(std::int64_t count, Visit visit) {
        for (std::int64_t first = 0; first < count;) {
            if (used == size) {
                twist();
            }
            const auto n = static_cast<int>(std::min<std::int64_t>(count - first, size - used));
            visit(first, state + used, n);
            used += n;
            first += n;
        }
    }
};

// torch draws integers below this from one word of 32 bits each, others from two.
inline constexpr std::int64_t one_word_integers = std::int64_t{1} << 28;

// A bit generator of NumPy as its capsule "BitGenerator" shows it: part of NumPy's stable ABI.
struct BitGenerator {
    void* state;
    std::uint64_t (*next_uint64)(void* state);
    std::uint32_t (*next_uint32)(void* state);
    double (*next_double)(void* state);
    std::uint64_t (*next_raw)(void* state);
};

// What every generator draws.
class IntegerDraws {
public:
    IntegerDraws() = default;
    IntegerDraws(const IntegerDraws&) = delete;
    IntegerDraws& operator=(const IntegerDraws&) = delete;
    virtual ~IntegerDraws() = default;

    // One integer of 0 ... n - 1, as a single call draws it; 0 < n < 2^28.
    virtual std::int64_t below(std::int64_t n) = 0;
    // 0 ... n - 1 in random order; n < 2^27 (torch takes two words a number not far above).
    virtual void permutation(std::int64_t n, std::int64_t* out) = 0;
};

class Draws : public IntegerDraws {
public:
    // One trial a token, each of which succeeds with probability p, or never where `eligible` is not 1. Writes where
    // they succeeded, in order, to `positions` (room for `count`); returns how many did.
    virtual std::int64_t trials(double p, const std::uint8_t* eligible, std::int64_t count,
                                std::int64_t* positions) = 0;
    // `count` trials; hit[i] becomes 1 or 0 for the one at positions[i], which rise.
    virtual void trials_at(double p, std::int64_t count, Span<const std::int64_t> positions, std::uint8_t* hit) = 0;
    // `count` integers below `high`: out[i] becomes the one at i, for those i that are among `positions`, which rise.
    virtual void integers_at(std::int64_t high, std::int64_t count, Span<const std::int64_t> positions,
                             std::int64_t* out) = 0;
    // Whether the reference draws a random word for each token, or only for those it replaces.
    virtual bool draws_every_word() const = 0;
};

// torch's CPU generator. A trial compares the low 24 bits of a word with a probability of float32 or less; 53 bits of
// two words, the higher one first, with one of float64. An integer below `high` < 2^28 is one word modulo `high`.
class TorchDraws final : public Draws {
public:
    TorchDraws(Mt19937& engine, bool float64) : engine_(engine), float64_(float64) {}

    std::int64_t trials(double p, const std::uint8_t* eligible, std::int64_t count, std::int64_t* positions) override;
    void trials_at(double p, std::int64_t count, Span<const std::int64_t> positions, std::uint8_t* hit) override;
    void integers_at(std::int64_t high, std::int64_t count, Span<const std::int64_t> positions,
                     std::int64_t* out) override;
    bool draws_every_word() const override { return true; }
    std::int64_t below(std::int64_t n) override;
    void permutation(std::int64_t n, std::int64_t* out) override;

private:
    Mt19937& engine_;
    bool float64_;
};

// Whose state is laid out as known.
enum class KnownBits : std::uint8_t { none, mt19937, pcg64 };

// A NumPy generator over a bit generator: `Generator`, or the older `RandomState`, which draws in other ways.
std::unique_ptr<Draws> numpy_draws(const BitGenerator& bits, KnownBits known, bool legacy, bool every_word);

// Python's `random`, as `random.randrange(n)` and `random.shuffle` draw.
class PythonDraws final : public IntegerDraws {
public:
    explicit PythonDraws(Mt19937& engine) : engine_(engine) {}

    std::int64_t below(std::int64_t n) override;
    void permutation(std::int64_t n, std::int64_t* out) override;

private:
    Mt19937& engine_;
};

}  // namespace quadrat::rng
