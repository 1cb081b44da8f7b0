"""Times two collators in one process, checks that their batches are equal, and names the versions of a result.

Collators are timed in turn, and each alone. In turn, changes in the machine's speed affect both, and each fills the CPU
caches with its own data; alone, each call finds its rows, code and memory in the caches. Times in a training loop are
between the two.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import platform
import random
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quadrat.support.extras import version

TIMES = "\N{MULTIPLICATION SIGN}"

Feature = dict[str, Any]
Collate = Callable[[list[Feature]], Any]

LIBRARIES = "torch", "numpy", "transformers", "quadrat"
SHORTEST_SAMPLE_NS = 50_000


class DifferenceError(AssertionError):
    """Two collators differ; the message says where."""


def check_same(expected: Any, actual: Any) -> None:
    """Raise DifferenceError unless the batches agree in container, key order, types, dtypes, shapes and every bit."""
    _same("container", type(expected), type(actual))
    _same("keys", list(expected), list(actual))
    for key, value in expected.items():
        other = actual[key]
        _same(f"type of {key}", type(value), type(other))
        if isinstance(value, int):
            _same(key, value, other)
            continue
        _same(f"dtype of {key}", value.dtype, other.dtype)
        _same(f"shape of {key}", value.shape, other.shape)
        left, right = np.asarray(value), np.asarray(other)
        if left.tobytes() != right.tobytes():
            unequal = np.argwhere(left != right)
            at = tuple(unequal[0].tolist()) if len(unequal) else ()
            raise DifferenceError(
                f"values of {key} differ" + (f", first at {at}: {left[at]} expected, {right[at]} found" if at else "")
            )


def check_collators(reference: Collate, quadrat: Collate, features: list[Feature]) -> None:
    """Raise DifferenceError unless both make the same batch and leave every random generator in the same state."""
    seed()
    expected, states = reference(features), generator_states()
    seed()
    check_same(expected, quadrat(features))
    found = generator_states()
    for name, state in states.items():
        if found[name] != state:
            raise DifferenceError(f"{name}'s random generator ends in another state")


def seed() -> None:
    """Seed the generators of torch, NumPy and Python."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def generator_states() -> dict[str, str]:
    """The states of the generators, by the library they belong to."""
    states = {"torch": torch.get_rng_state().tolist(), "NumPy": np.random.get_state(), "Python": random.getstate()}
    return {library: str(state) for library, state in states.items()}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """One torch thread, and no garbage collection."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        torch.set_num_threads(threads)


def sample(collate: Collate, features: list[Feature], calls: int = 1) -> float:
    """Nanoseconds a call, over `calls` calls in a row."""
    repeats = range(calls)
    start = perf_counter_ns()
    for _ in repeats:
        collate(features)
    return (perf_counter_ns() - start) / calls


def timed(
    collators: Sequence[Collate], features: list[Feature], *, seconds: float, calls: int = 1, at_least: int = 5
) -> NDArray[np.float64]:
    """Nanoseconds a call, `[samples, collators]`, of collators in turn, for about `seconds` after one to warm up."""
    taken: list[list[float]] = []
    with quiet():
        for collate in collators:
            sample(collate, features, calls)
        end = perf_counter_ns() + seconds * 1e9
        while len(taken) < at_least or perf_counter_ns() < end:
            taken.append([sample(collate, features, calls) for collate in collators])
    return np.array(taken)


def calls_of(reference: Collate, features: list[Feature]) -> int:
    """How many calls of the reference are long enough to be timed; a second one of quadrat would find warm caches."""
    return math.ceil(SHORTEST_SAMPLE_NS / min(sample(reference, features) for _ in range(5)))


def versions() -> dict[str, Any]:
    """The kind of machine and the versions that a result depends on."""
    return {
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
    }


def microseconds(nanoseconds: float) -> str:
    """A time, as text."""
    value = nanoseconds / 1e3
    return f"{value:,.0f} µs" if value >= 1000 else f"{value:,.1f} µs"


def times_as(ratio: float) -> str:
    """A ratio of two times, as text."""
    return f"{ratio:.0f}{TIMES}" if ratio >= 100 or ratio == int(ratio) else f"{ratio:.1f}{TIMES}"


def rounded(value: Any) -> Any:
    """The same data, as JSON has it, with floats of three decimals."""
    return json.loads(json.dumps(value), parse_float=lambda number: round(float(number), 3))


def _same(what: str, expected: Any, actual: Any) -> None:
    if expected != actual:
        raise DifferenceError(f"{what}: {expected} expected, {actual} found")
