// Generators of torch, NumPy and Python: the state comes out, a kernel advances it, and it goes back if draws are kept.
#pragma once

#include <pybind11/critical_section.h>

#include "../../kernels/rng/draws.hpp"
#include "../casters.hpp"

namespace quadrat {

// What draws, and how.
enum class GeneratorType : std::uint8_t {
    torch,         // torch.Generator of the CPU
    torch_double,  // the same, where probabilities are float64
    numpy,         // numpy.random.Generator
    numpy_legacy,  // numpy.random.RandomState
    python,        // random.Random
};

// The words of an MT19937 whose owner is asked for them, and given them back by `keep`. Neither call runs Python code,
// in which another thread might draw from the same owner.
class Engine {
public:
    static Engine of_torch(const py::object& generator);
    static Engine of_python(const py::object& generator);

    rng::Mt19937& words() { return *words_; }
    // Gives the advanced state back. Without it the generator stays as it was.
    void keep();

private:
    Engine(py::object generator, py::object state) : generator_(std::move(generator)), state_(std::move(state)) {}

    py::object generator_;
    py::object state_;  // as its owner handed it out
    bool of_torch_ = false;
    std::unique_ptr<rng::Mt19937> words_ = std::make_unique<rng::Mt19937>();
};

// A NumPy bit generator, its lock held.
class LockedBits {
public:
    explicit LockedBits(const py::object& generator);
    LockedBits(const LockedBits&) = delete;
    LockedBits& operator=(const LockedBits&) = delete;
    ~LockedBits();

    std::unique_ptr<rng::Draws> draws(bool legacy, bool every_word) const;

private:
    py::object owner_, lock_;
    py::object release_;  // of the lock; it is looked up before, because looking it up takes memory
    const rng::BitGenerator* bits_ = nullptr;
};

// Without the GIL, one thread at a time has it. A critical section would not do for a random.Random: its own calls
// enter one too, and end ours meanwhile.
struct Turn {
#ifdef Py_GIL_DISABLED
    Turn() { PyMutex_Lock(&mutex); }
    ~Turn() { PyMutex_Unlock(&mutex); }

    static inline PyMutex mutex{};
#endif
};

// Runs draw(Draws&), which returns a Status or anything that says true when its draws are kept. every_word: see Draws.
// Threads that share a generator draw one after the other.
template <typename Draw>
auto with_draws(GeneratorType type, const py::object& generator, bool every_word, Draw draw) {
    if (type == GeneratorType::torch || type == GeneratorType::torch_double) {
        const py::scoped_critical_section lock{generator};
        Engine engine = Engine::of_torch(generator);
        rng::TorchDraws draws(engine.words(), type == GeneratorType::torch_double);
        auto result = draw(static_cast<rng::Draws&>(draws));
        if (static_cast<bool>(result)) {
            engine.keep();
        }
        return result;
    }
    const LockedBits locked(generator);
    return draw(*locked.draws(type == GeneratorType::numpy_legacy, every_word));
}

}  // namespace quadrat
