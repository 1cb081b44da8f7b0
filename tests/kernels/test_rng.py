"""The draws against the libraries they are written after: the same numbers, and the same state afterwards."""

import copy
import random
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quadrat import _core
from quadrat.support import generators
from quadrat.support.generators import NUMPY, NUMPY_LEGACY, PYTHON, TORCH
from support.threads import together

BIT_GENERATORS = [np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64]

# MT19937 makes 624 words at a time; a sample takes four or five numbers a token.
counts = st.integers(0, 40) | st.sampled_from([155, 156, 157, 623, 624, 625, 626, 1247, 1248, 4096, 5000])
seeds = st.integers(0, 2**32 - 1)
steps = st.integers(0, 1300) | st.sampled_from([0, 623, 624, 625, 1248])
probabilities = (
    st.sampled_from([0.0, 1.0, 0.5, 0.15, 0.8, 0.1, 2.0**-24, 1 - 2.0**-24, 1 - 2.0**-53, 2.0**-25, 5e-324])
    | st.integers(0, 2**24).map(lambda n: n * 2.0**-24)
    | st.floats(0, 1)
)
highs = st.integers(1, 300) | st.integers(1, 2**28 - 1) | st.sampled_from([1, 2, 30_000, 2**16, 2**28 - 1])

samples = st.tuples(probabilities, highs, counts)


@given(seeds, steps, st.booleans(), samples)
def test_torch(seed: int, step: int, normal: bool, sample: tuple[float, int, int]) -> None:
    p, high, count = sample
    ours = torch.Generator().manual_seed(seed)
    torch.randint(9, (step,), generator=ours)
    if normal:
        torch.randn(3, generator=ours)
    theirs = torch.Generator()
    theirs.set_state(ours.get_state())
    matrix = torch.full((count,), p)
    expected = (
        torch.bernoulli(matrix, generator=theirs).nonzero().flatten().tolist(),
        torch.bernoulli(matrix, generator=theirs).int().tolist(),
        torch.randint(high, (count,), generator=theirs).tolist(),
        int(torch.randint(high, (1,), generator=theirs)),
        torch.randperm(count, generator=theirs).tolist(),
    )
    assert _core.sample(TORCH, ours, *sample) == expected
    assert torch.equal(ours.get_state(), theirs.get_state())


def numpy_draws(generator: Any, p: float, high: int, count: int) -> tuple[Any, ...]:
    integers = generator.integers if isinstance(generator, np.random.Generator) else generator.randint
    order = list(range(count))
    expected = (
        np.flatnonzero(generator.binomial(1, np.full(count, p), size=count)).tolist(),
        generator.binomial(1, p, size=count).tolist(),
        integers(low=0, high=high, size=count, dtype=np.int64).tolist(),
        int(integers(low=0, high=high, dtype=np.int64)),
    )
    generator.shuffle(order)
    return (*expected, order)


@pytest.mark.parametrize("source", [NUMPY, NUMPY_LEGACY])
@pytest.mark.parametrize("bits", BIT_GENERATORS)
@given(seeds, steps, st.integers(0, 3), samples)
def test_numpy(source: int, bits: Any, seed: int, step: int, odd: int, sample: tuple[float, int, int]) -> None:  # noqa: PLR0917
    ours: Any = (np.random.Generator if source == NUMPY else np.random.RandomState)(bits(seed))
    ours.random(step)
    (ours.integers if source == NUMPY else ours.randint)(0, 1000, size=odd)  # half a word may be left over
    ours.standard_normal(odd)  # the older one keeps every second number
    theirs = copy.deepcopy(ours)
    assert _core.sample(source, ours, *sample) == numpy_draws(theirs, *sample)
    states = [draw._bit_generator.state if source == NUMPY else draw.get_state(legacy=False) for draw in (ours, theirs)]
    np.testing.assert_equal(*states)


@given(seeds, steps, st.booleans(), highs, counts)
def test_python(seed: int, step: int, normal: bool, high: int, count: int) -> None:
    ours = random.Random(seed)
    if step:
        ours.getrandbits(32 * step)
    if normal:
        ours.gauss(0, 1)
    theirs = random.Random()
    theirs.setstate(ours.getstate())
    integer, order = theirs.randrange(high), list(range(count))
    theirs.shuffle(order)
    assert _core.sample(PYTHON, ours, 0.5, high, count)[3:] == (integer, order)
    assert ours.getstate() == theirs.getstate()


@given(seeds, st.sampled_from([0, 1, 311, 623, 624]), st.integers(0, 5))
def test_a_torch_state_between_two_twists(seed: int, step: int, twists: int) -> None:
    """As many words as bring the engine back to where it was among its 624: its state says which of the two it is."""
    ours, theirs = (torch.Generator().manual_seed(seed) for _ in range(2))
    for generator in (ours, theirs):
        torch.randint(9, (step,), generator=generator)
    # One pass of trials: all other draws are left out when the replacement is always the mask.
    count = 312 * twists
    labels = _core.MaskedLabels(TORCH, ours, 0.5, (1.0, None, 3, 9), [])
    ids, out = np.full(count, 5), np.empty(count, np.int64)
    labels.write(ids.ctypes.data, out.ctypes.data, 1, count, False, False, 0, 0, 0, 0)
    torch.bernoulli(torch.full((2, count), 0.5), generator=theirs)
    assert torch.equal(ours.get_state(), theirs.get_state())


def foreign(state: Any) -> Any:
    """A generator whose state is not laid out as known; of a random.Random, that is the one of the class below."""
    below = type("Below", (), dict.fromkeys(("get_state", "getstate"), lambda _: state))
    return type("Foreign", (below,), {})()


def torch_state(left: int, following: int = 0) -> torch.Tensor:
    state = torch.Generator().get_state()
    state[8:12] = torch.tensor([left], dtype=torch.int32).view(torch.uint8)
    state[16:24] = torch.tensor([following], dtype=torch.int64).view(torch.uint8)
    return state


def python_state(*, words: int = 624, index: Any = 624, word: Any = 1) -> tuple[Any, ...]:
    return (*[word] * words, index)


@pytest.mark.parametrize(
    ("source", "state"),
    [
        (TORCH, torch.Generator().get_state()[:-1]),
        (TORCH, torch.zeros(16, dtype=torch.uint8)),  # as of a generator of a GPU
        (TORCH, torch_state(0)),
        (TORCH, torch_state(626)),
        (TORCH, torch_state(-1)),
        (TORCH, torch_state(-(2**31))),
        (TORCH, torch_state(400)),
        (TORCH, torch_state(400, 226)),
        (PYTHON, python_state(words=623)),
        (PYTHON, python_state(words=625)),
        (PYTHON, python_state(index=625)),
        (PYTHON, python_state(index=-1)),
        (PYTHON, python_state(word=-1)),
        (PYTHON, python_state(word="x")),
        (PYTHON, python_state(index="x")),
        (PYTHON, (3, (1,) * 625, None)),
        (PYTHON, (3,)),
        (PYTHON, None),
    ],
)
def test_refuses_a_state_of_another_layout(source: int, state: Any) -> None:
    with pytest.raises(ValueError, match="another layout"):
        _core.sample(source, foreign(state), 0.5, 9, 3)


KNOWN = [generators._torch_is_known, generators._numpy_is_known, generators._python_is_known]


@pytest.fixture
def forgetful() -> Any:
    for known in KNOWN:
        known.cache_clear()
    yield
    for known in KNOWN:
        known.cache_clear()


def raises(*_: Any) -> Any:
    raise ValueError("the state has another layout")


def draws_nothing(*_: Any) -> Any:
    return [], [], [], 0, []


def draws_once_more(source: int, generator: Any, *arguments: Any) -> Any:
    drawn = _SAMPLE(source, generator, *arguments)
    if isinstance(generator, random.Random):
        generator.random()
    elif isinstance(generator, torch.Generator):
        torch.randint(2, (1,), generator=generator)
    return drawn


_SAMPLE = _core.sample


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("sample", [raises, draws_nothing, draws_once_more])
def test_draws_that_differ_are_not_known(monkeypatch: Any, sample: Any) -> None:
    origins = [generators.torch_origin, generators.numpy_origin]
    assert all(origin(None) for origin in origins)
    assert generators.python_origin()
    for known in KNOWN:
        known.cache_clear()
    monkeypatch.setattr(_core, "sample", sample)
    assert generators.torch_origin(torch.Generator()) is None
    assert generators.python_origin() is None
    if sample is not draws_once_more:
        assert generators.numpy_origin(None) is None
        assert generators.numpy_origin(np.random.default_rng(3)) is None


def test_waits_for_the_lock_and_gives_it_back() -> None:
    generator = np.random.default_rng(3)
    lock = generator.bit_generator.lock
    done = threading.Event()

    def draw() -> None:
        _core.sample(NUMPY, generator, 0.5, 9, 3)
        done.set()

    thread = threading.Thread(target=draw)
    with lock:
        thread.start()
        assert not done.wait(0.05)
    assert done.wait(60)
    thread.join()
    assert is_free(lock)


@pytest.mark.parametrize("capsule", [None, 3, "a capsule of another name"])
def test_the_lock_is_free_after_an_error(capsule: Any) -> None:
    lock = threading.Lock()
    if isinstance(capsule, str):
        capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    bits = SimpleNamespace(lock=lock, capsule=capsule)
    with pytest.raises(ValueError, match="Capsule"):
        _core.sample(NUMPY, SimpleNamespace(_bit_generator=bits), 0.5, 9, 3)
    assert is_free(lock)


def test_the_lock_is_free_after_a_lock_that_cannot_be_had() -> None:
    class Broken:
        def acquire(self) -> None:
            raise RuntimeError("no lock for you")

        def release(self) -> None:
            raise AssertionError("was never held")

    real = np.random.default_rng(3).bit_generator
    bits = SimpleNamespace(lock=Broken(), capsule=real.capsule)
    before = copy.deepcopy(real.state)
    with pytest.raises(RuntimeError, match="no lock for you"):
        _core.sample(NUMPY, SimpleNamespace(_bit_generator=bits), 0.5, 9, 3)
    assert real.state == before


def is_free(lock: Any) -> bool:
    """Whether another thread could have the lock, which may be one that its owner may take twice."""

    def take() -> bool:
        free = lock.acquire(blocking=False)
        if free:
            lock.release()
        return bool(free)

    return together(take) == [True]
