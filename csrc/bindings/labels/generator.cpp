#include "generator.hpp"

#include <pybind11/stl.h>

#include <numeric>

#include "../classes.hpp"

namespace quadrat {
namespace {

constexpr int state_words = rng::Mt19937::size;

// torch's `Generator.get_state()`: uint64 seed, int32 left, int32 seeded, uint64 next, the words in slots of 64 bits,
// then what `normal` keeps. `left` counts down from 624 with each word, and is 1 when a new state is due.
struct TorchState {
    std::uint64_t seed;
    std::int32_t left;
    std::int32_t seeded;
    std::uint64_t next;
    std::uint64_t words[state_words];
    unsigned char normals[40];
};
static_assert(sizeof(TorchState) == 5056, "the state torch hands out");

[[noreturn]] void refuse_layout(const char* owner) {
    throw py::value_error("the state of this " + std::string(owner) + " has another layout");
}

}  // namespace

Engine Engine::of_torch(const py::object& generator) {
    Engine engine(generator, generator.attr("get_state")());
    engine.of_torch_ = true;
    if (engine.state_.attr("numel")().cast<std::int64_t>() != static_cast<std::int64_t>(sizeof(TorchState))) {
        refuse_layout("torch generator");
    }
    const auto* const state =
        reinterpret_cast<const TorchState*>(engine.state_.attr("data_ptr")().cast<std::uintptr_t>());
    for (int i = 0; i < state_words; ++i) {
        engine.words_->state[i] = static_cast<std::uint32_t>(state->words[i]);
    }
    const std::int64_t used = std::int64_t{state_words} + 1 - state->left;
    const bool seeded_just_now = state->next == 0 && used == state_words;
    if (used < 0 || used > state_words || (state->next != static_cast<std::uint64_t>(used) && !seeded_just_now)) {
        refuse_layout("torch generator");
    }
    engine.words_->used = static_cast<int>(used);
    return engine;
}

Engine Engine::of_python(const py::object& generator) {
    // The class below random.Random has the words alone, in C.
    Engine engine(generator, py::type::of(generator).attr("__base__").attr("getstate")(generator));
    PyObject* const words = engine.state_.ptr();
    if (!PyTuple_Check(words) || PyTuple_GET_SIZE(words) != state_words + 1) {
        refuse_layout("random.Random");
    }
    for (int i = 0; i < state_words && PyErr_Occurred() == nullptr; ++i) {
        engine.words_->state[i] = static_cast<std::uint32_t>(PyLong_AsUnsignedLong(PyTuple_GET_ITEM(words, i)));
    }
    const long used = PyErr_Occurred() == nullptr ? PyLong_AsLong(PyTuple_GET_ITEM(words, state_words)) : -1;
    clear_error();
    if (used < 0 || used > state_words) {
        refuse_layout("random.Random");
    }
    engine.words_->used = static_cast<int>(used);
    return engine;
}

void Engine::keep() {
    if (of_torch_) {
        auto* const state = reinterpret_cast<TorchState*>(state_.attr("data_ptr")().cast<std::uintptr_t>());
        bool drawn = state->left != state_words + 1 - words_->used;
        for (int i = 0; i < state_words; ++i) {
            drawn = drawn || state->words[i] != words_->state[i];  // 624 draws end where they began, with other words
            state->words[i] = words_->state[i];
        }
        state->left = state_words + 1 - words_->used;
        state->next = drawn ? static_cast<std::uint64_t>(words_->used) : state->next;  // 0 after seeding
        generator_.attr("set_state")(state_);
        return;
    }
    py::tuple words(state_words + 1);
    for (int i = 0; i < state_words; ++i) {
        words[static_cast<std::size_t>(i)] = py::int_(words_->state[i]);
    }
    words[state_words] = py::int_(words_->used);
    py::type::of(generator_).attr("__base__").attr("setstate")(generator_, words);
}

LockedBits::LockedBits(const py::object& generator)
    : owner_(generator.attr("_bit_generator")), lock_(owner_.attr("lock")), release_(lock_.attr("release")) {
    bits_ = pointer_in<rng::BitGenerator>(owner_.attr("capsule"), "BitGenerator");
    lock_.attr("acquire")();
}

LockedBits::~LockedBits() {
    const py::error_scope kept;  // of what ended the drawing
    const auto released = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(release_.ptr()));
    if (!released) {
        PyErr_WriteUnraisable(lock_.ptr());
    }
}

std::unique_ptr<rng::Draws> LockedBits::draws(bool legacy, bool every_word) const {
    const std::string name = Py_TYPE(owner_.ptr())->tp_name;
    const auto known = name == "numpy.random._mt19937.MT19937" ? rng::KnownBits::mt19937
                       : name == "numpy.random._pcg64.PCG64"   ? rng::KnownBits::pcg64
                                                               : rng::KnownBits::none;
    return rng::numpy_draws(*bits_, known, legacy, every_word);
}

void register_generator(py::module_& m) {
    // What each type of generator draws, to compare it with the library: trials of probability p for `count` tokens,
    // the same again at every token, integers below `high`, one such integer, a permutation of `count`.
    m.def(
        "sample",
        [](int type, const py::object& generator, double p, std::int64_t high, std::int64_t count) {
            const auto n = static_cast<std::size_t>(count);
            std::vector<std::int64_t> first(n), all(n), integers(n), order(n);
            std::vector<std::uint8_t> eligible(n, 1), hit(n);
            std::int64_t successes = 0, integer = 0;
            std::iota(all.begin(), all.end(), std::int64_t{0});
            if (static_cast<GeneratorType>(type) == GeneratorType::python) {
                Engine engine = Engine::of_python(generator);
                rng::PythonDraws draws(engine.words());
                integer = draws.below(high);
                draws.permutation(count, order.data());
                engine.keep();
            } else {
                with_draws(static_cast<GeneratorType>(type), generator, true, [&](rng::Draws& draws) {
                    successes = draws.trials(p, eligible.data(), count, first.data());
                    draws.trials_at(p, count, {all.data(), count}, hit.data());
                    draws.integers_at(high, count, {all.data(), count}, integers.data());
                    integer = draws.below(high);
                    draws.permutation(count, order.data());
                    return true;
                });
            }
            first.resize(static_cast<std::size_t>(successes));
            return py::make_tuple(first, hit, integers, integer, order);
        },
        "generator_type"_a, "generator"_a, "p"_a, "high"_a, "count"_a);
}

}  // namespace quadrat
