"""A job and the ways to do it, how their results are compared, and clocks."""

import contextlib
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import pytest
import torch

from quadrat.support.differences import first_difference

Call = Callable[[], Any]
BOTH = ("transformers", "quadrat")
TRIED = False  # True with --benchmark-disable


@dataclass
class Job:
    """A piece of work, and the ways to do it.

    facts: what is said of the work beside its results. base: the way by whose times those of the others are divided.
    check: raises AssertionError; without one, all ways return the same and draw the same numbers (`containers=False`:
    perhaps in another kind of mapping or list). slow: ways that are measured once, and are not called between the
    others. factors: by way, from the time of a call to the time that is said, where a way does a part of the work.
    per: the batches or rows that a call makes. around: by way, a context for each call, which is no part of the time.
    """

    ways: Mapping[str, Call]
    facts: Mapping[str, Any] = field(default_factory=dict)
    base: str = "quadrat"
    check: Call | None = None
    containers: bool = True
    slow: tuple[str, ...] = ()
    factors: Mapping[str, float] = field(default_factory=dict)
    per: float = 1
    around: Mapping[str, Callable[[], contextlib.AbstractContextManager[Any]]] = field(default_factory=dict)

    def factor(self, way: str) -> float:
        return self.factors.get(way, 1) / self.per

    def context(self, way: str) -> contextlib.AbstractContextManager[Any]:
        return self.around.get(way, contextlib.nullcontext)()

    def compare(self) -> None:
        """Raise AssertionError unless all ways do the same."""
        if self.check is not None:
            self.check()
            return
        expected: list[Any] = []
        for name, call in self.ways.items():
            seed()
            with self.context(name):
                result = [call(), (torch.get_rng_state(), np.random.get_state(), random.getstate())]
            expected = expected or result
            same(expected[0], result[0], f"what {name} makes", containers=self.containers)
            same(expected[1], result[1], f"the generators after {name}")


Cases = Mapping[str, Callable[[], Job]]


def each(cases: Iterable[str], ways: Any = BOTH, *, small: int | None = None) -> pytest.MarkDecorator:
    """Parametrize a test by `case` and `way`, the ways of a case one after the other.

    ways: their names, or a function that gives those of a case. small: so many of the cases are tried by `make test`.
    """
    chosen = list(cases)[: small if TRIED else None]
    pairs = [(case, way) for case in chosen for way in (ways(case) if callable(ways) else ways)]
    parameters = [pytest.param(case, way, id=f"{case}-{way}") for case, way in pairs]
    return pytest.mark.parametrize(("case", "way"), parameters)


def timed(cases: Cases, ways: Any = BOTH, *, small: int | None = None, timer: Any = None, **options: Any) -> Any:
    """A test of the cases that `each` chooses, by the fixture `in_turn` with these options; timer: its clock."""

    @each(cases, ways, small=small)
    def test(in_turn: Any, case: str, way: str) -> None:
        in_turn(cases[case], way, **options)

    return test if timer is None else pytest.mark.benchmark(timer=timer)(test)


def timed_alone(cases: Cases, ways: Any = BOTH, *, small: int | None = None, **options: Any) -> Any:
    """The same by the fixture `alone`."""

    @each(cases, ways, small=small)
    def test(alone: Any, case: str, way: str) -> None:
        alone(cases[case], way, **options)

    return test


def size(usual: Any, tried: Any) -> Any:
    """A number, or other arguments, for measuring; or one for `make test`, which tries all and measures nothing."""
    return tried if TRIED else usual


def seed() -> None:
    """Seed the generators of torch, NumPy and Python."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def same(expected: Any, result: Any, name: str = "the result", *, containers: bool = True) -> None:
    """Raise AssertionError unless both are equal in every bit, with types, dtypes, shapes and the order of keys.

    With `containers=False`, a mapping may be of another class, a list a tuple, and a tensor not contiguous.
    """
    values = (expected, result) if containers else (_plain(expected), _plain(result))
    if (difference := first_difference(*values, name, skips=False)) is not None:
        raise AssertionError(difference)


def _plain(value: Any) -> Any:
    if hasattr(value, "keys"):  # `in` and iteration of some containers are over batches
        return {name: _plain(value[name]) for name in value.keys()}  # noqa: SIM118
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.detach().contiguous() if isinstance(value, torch.Tensor) else value


def has_gil() -> bool:
    return getattr(sys, "_is_gil_enabled", lambda: True)()  # type: ignore[no-any-return]


def synchronised() -> float:
    """A clock that waits until the GPU, where there is one, has done all that was launched."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return perf_counter()


_SECONDS = [0.0]


def report(seconds: float) -> None:
    """Let the clock `reported` go on: for calls that measure a part of themselves, or in another process."""
    _SECONDS[0] += seconds


def reported() -> float:
    return _SECONDS[0]
