"""The random generators that the reference draws from, if the compiled code draws the same: tried once a process."""

import functools
import os
import random
import sys
from typing import Any, NamedTuple

import numpy as np

from quadrat import _core
from quadrat.support.kinds import Framework
from quadrat.support.locks import new_lock

_TYPES = _core.GENERATOR_TYPES
TORCH, TORCH_DOUBLE, PYTHON = _TYPES.TORCH, _TYPES.TORCH_DOUBLE, _TYPES.PYTHON
NUMPY, NUMPY_LEGACY = _TYPES.NUMPY, _TYPES.NUMPY_LEGACY

_P, _HIGH, _COUNT = 0.3, 1000, 700  # more than the 624 words that MT19937 makes at a time


class Origin(NamedTuple):
    """Where draws come from: the kind of generator, and the generator."""

    generator_type: int
    generator: Any
    dtype: Any = None  # of torch's tensors of probabilities

    def rounded(self, probability: float) -> float:
        """A probability as it is compared with what is drawn."""
        if self.dtype is None:
            return probability
        import torch

        return float(torch.full((), probability, dtype=self.dtype, device="cpu").item())

    def replacement(
        self, mask: float, random: float, mask_id: int, vocab_size: int
    ) -> tuple[float, float | None, int, int]:
        """How masked tokens are replaced, as the kernels take it: what random words are drawn with may be None."""
        has_random = mask != 1 and random != 0
        of_rest = self.rounded(min(random / (1 - mask), 1.0)) if has_random else None
        return self.rounded(mask), of_rest, mask_id, vocab_size


def torch_origin(generator: Any) -> Origin | None:
    """The torch generator that `generator=...` stands for, and the default dtype; None unless it is on the CPU."""
    torch = sys.modules["torch"]
    if generator is None:
        generator = torch.default_generator
    if type(generator) is not torch.Generator or generator.device.type != "cpu":
        return None
    dtype = torch.get_default_dtype()
    generator_type = TORCH_DOUBLE if dtype == torch.float64 else TORCH
    return Origin(generator_type, generator, dtype) if _torch_is_known(dtype) else None


def numpy_origin(generator: Any) -> Origin | None:
    """The NumPy generator, or for None the one behind `numpy.random`; None where its draws are not known."""
    if generator is None:
        return Origin(NUMPY_LEGACY, np.random.mtrand._rand) if _numpy_is_known() else None
    return Origin(NUMPY, generator) if type(generator) is np.random.Generator and _numpy_is_known() else None


def python_origin() -> Origin | None:
    """The generator behind the functions of `random`; None where its draws are not known."""
    generator = getattr(random.shuffle, "__self__", None)
    return Origin(PYTHON, generator) if type(generator) is random.Random and _python_is_known() else None


@functools.cache
def _torch_is_known(dtype: Any) -> bool:
    import torch

    ours, theirs = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    chances = torch.full((_COUNT,), _P, dtype=dtype, device="cpu")
    first, second = (torch.bernoulli(chances, generator=theirs).int() for _ in range(2))
    words, word = (torch.randint(_HIGH, (n,), generator=theirs, device="cpu").tolist() for n in (_COUNT, 1))
    order = torch.randperm(_COUNT, generator=theirs, device="cpu").tolist()
    expected = first.nonzero().flatten().tolist(), second.tolist(), words, *word, order
    origin = Origin(TORCH_DOUBLE if dtype == torch.float64 else TORCH, ours, dtype)
    return _draws_alike(origin, expected) and torch.equal(ours.get_state(), theirs.get_state())


@functools.cache
def _numpy_is_known() -> bool:
    ours, theirs = np.random.default_rng(5), np.random.default_rng(5)
    old_ours, old_theirs = np.random.RandomState(5), np.random.RandomState(5)
    return _draws_alike(Origin(NUMPY, ours), _numpy_draws(theirs, theirs.integers)) and _draws_alike(
        Origin(NUMPY_LEGACY, old_ours), _numpy_draws(old_theirs, old_theirs.randint)
    )


def _numpy_draws(generator: Any, integers: Any) -> tuple[Any, ...]:
    first = np.flatnonzero(generator.binomial(1, np.full(_COUNT, _P), size=_COUNT))
    trials = generator.binomial(1, _P, size=_COUNT)
    words = integers(low=0, high=_HIGH, size=_COUNT, dtype=np.int64)
    word = int(integers(low=0, high=_HIGH, dtype=np.int64))
    order = list(range(_COUNT))
    generator.shuffle(order)
    return first.tolist(), trials.tolist(), words.tolist(), word, order


@functools.cache
def _python_is_known() -> bool:
    ours, theirs = random.Random(5), random.Random(5)
    number, order = theirs.randrange(_HIGH), list(range(_COUNT))
    theirs.shuffle(order)
    return _draws_alike(Origin(PYTHON, ours), (number, order)) and ours.getstate() == theirs.getstate()


def _draws_alike(ours: Origin, expected: tuple[Any, ...]) -> bool:
    """True if the last of our draws, in the order of `_core.sample`, are the expected ones."""
    try:
        drawn = _core.sample(ours.generator_type, ours.generator, ours.rounded(_P), _HIGH, _COUNT)
        return drawn[-len(expected) :] == expected
    except (ValueError, AttributeError):  # a state or an interface of another shape
        return False


_lock = new_lock()


def lacks_generator(collator: Any, framework: Framework | None) -> bool:
    """True if a collator lacks a generator of this process for `framework`; None: any generator is good."""
    if framework is None or collator.generator is None:
        return collator.generator is None
    kind: type = np.random.Generator if framework == "np" else sys.modules["torch"].Generator
    return not isinstance(collator.generator, kind) or getattr(collator, "_generator_pid", None) != os.getpid()


def create_generator(collator: Any, framework: Framework | None = None) -> None:
    """Have a collator make its generator, once: threads with a generator each would draw the same numbers."""
    with _lock:
        if lacks_generator(collator, framework):
            collator.create_rng(*(() if framework is None else (framework,)))
