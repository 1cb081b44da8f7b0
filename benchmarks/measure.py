"""A case, and the one way in which all cases are checked and measured.

The ways to do a case's work are called in turn (one, another, one, ...) in one process, on one thread of torch, without
garbage collection, so that changes in the machine's speed affect all of them, and each finds the CPU caches as the
others leave them. Results are medians. What a call returns is freed within its time.
"""

import contextlib
import gc
import math
import os
import platform
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter_ns, process_time_ns
from typing import Any

import numpy as np
import torch

from quadrat.support.differences import first_difference
from quadrat.support.extras import version

GPU = torch.cuda.is_available()
BUSY = 1.25  # times by which ratios of wall clock and of processor differ where another program uses the machine
ONCE = sys.maxsize  # `Way.every` of what takes part in the first round alone

Call = Callable[[], Any]
Cases = dict[str, Callable[[], "Case"]]  # by name, what sets a case up when it is to be measured
Sample = dict[str, float]
Stopwatch = Callable[[Call, int], Sample]


def clocked(clock: Callable[[], int], call: Call, calls: int) -> Sample:
    """Nanoseconds a call, over `calls` calls in a row."""
    repeats = range(calls)
    start = clock()
    for _ in repeats:
        call()
    return {"ns": (clock() - start) / calls}


def synchronised() -> int:
    """The time when the GPU, where there is one, has done all that was launched."""
    if GPU:
        torch.cuda.synchronize()
    return perf_counter_ns()


def wall(call: Call, calls: int) -> Sample:
    """Nanoseconds a call, and those of the processor."""
    used = process_time_ns()
    sample = clocked(perf_counter_ns, call, calls)
    return sample | {"cpu_ns": (process_time_ns() - used) / calls}


processor: Stopwatch = partial(clocked, process_time_ns)
device: Stopwatch = partial(clocked, synchronised)


def own(call: Call, _: int) -> Sample:
    """The sample that the call itself returns."""
    return call()  # type: ignore[no-any-return]


@dataclass
class Way:
    """One way to do a case's work."""

    call: Call
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext  # no part of the time
    every: int = 1  # takes part in each round whose number this divides
    scale: float = 1  # from the part of the work that it does to all of it


@dataclass
class Case:
    """A piece of work, and the ways to do it; a case without ways has facts alone."""

    ways: Mapping[str, Any] = field(default_factory=dict)  # a `Way`, or what it calls
    facts: Mapping[str, Any] = field(default_factory=dict)
    base: str = "quadrat"  # the way by whose samples those of the others are divided
    # Raises AssertionError. None: all ways return the same and draw the same numbers, if they do not return samples.
    check: Call | None = None
    containers: bool = True  # False: what they return may be in another kind of mapping or list
    stopwatch: Stopwatch = wall
    rounds: int = 5  # at least
    seconds: float = 0  # at least
    shortest: int = 0  # nanoseconds of a sample, about: calls of the first way in a row
    per: int = 1  # the batches or rows that a call makes
    alone: float = 0  # the part of `seconds` for which each way is measured alone, too
    in_turn: bool = True  # False: one way after the other
    swap: bool = False  # every other round the other way around
    centre: Callable[[Any], Any] = np.median
    least: float = 0  # the ratio of the first way below which quadrat is called slower

    def __post_init__(self) -> None:
        self.ways = {name: way if isinstance(way, Way) else Way(way) for name, way in self.ways.items()}


def same(expected: Any, found: Any, name: str = "the result", *, containers: bool = True) -> None:
    """Raise AssertionError unless both are equal in every bit, with types, dtypes, shapes and the order of keys.

    With `containers=False`, a mapping may be of another class, a list a tuple, and a tensor not contiguous.
    """
    values = (expected, found) if containers else (_plain(expected), _plain(found))
    if (difference := first_difference(*values, name, skips=False)) is not None:
        raise AssertionError(difference)


def _plain(value: Any) -> Any:
    if hasattr(value, "keys"):  # `in` and iteration of some containers are over batches
        return {name: _plain(value[name]) for name in value.keys()}  # noqa: SIM118
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.detach().contiguous() if isinstance(value, torch.Tensor) else value


def seed() -> None:
    """Seed the generators of torch, NumPy and Python."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


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


def check(case: Case) -> None:
    """Raise AssertionError unless all ways of a case do the same."""
    if case.check is not None:
        case.check()
    first: list[Any] = []
    for name, way in case.ways.items() if case.check is None and case.stopwatch is not own else ():
        seed()
        with way.around():
            found = [way.call(), (torch.get_rng_state(), np.random.get_state(), random.getstate())]
        first = first or found
        same(first[0], found[0], f"what {name} makes", containers=case.containers)
        same(first[1], found[1], f"the generators after {name}")


def samples(case: Case, names: Iterable[str], seconds: float, rounds: int, calls: int) -> dict[str, list[Sample]]:
    """Samples of these ways in turn, of each in the order in which they were taken."""
    taken: dict[str, list[Sample]] = {name: [] for name in names}
    number, end = 0, perf_counter_ns() + seconds * 1e9
    while number < rounds or perf_counter_ns() < end:
        for name in reversed(taken) if case.swap and number % 2 else taken:
            way = case.ways[name]
            if number % way.every == 0:
                with way.around():
                    found = case.stopwatch(way.call, calls)
                taken[name].append({what: value * way.scale / case.per for what, value in found.items()})
        number += 1
    return taken


def measure(case: Case, effort: float = 1) -> dict[str, Any]:
    """The facts of a case, and by way: medians, quartiles, and the ratio of its times to those of the base.

    effort: a factor of the rounds and of the time.
    """
    if not case.ways:
        return dict(case.facts)
    seconds, rounds, calls = case.seconds * effort, max(1, round(case.rounds * effort)), 1
    with quiet():
        if case.shortest:
            first = next(iter(case.ways.values()))
            calls = max(1, math.ceil(case.shortest / min(wall(first.call, 1)["ns"] for _ in range(3))))
        taken: dict[str, list[Sample]] = {}
        for turn in [case.ways] if case.in_turn else [[name] for name in case.ways]:
            taken |= samples(case, turn, seconds, rounds, calls)
        ways = {name: summary(case, name, taken) for name in case.ways}
        for name, way in case.ways.items() if case.alone else ():
            way.call()
            apart = samples(case, [name], seconds * case.alone, min(rounds, 5), calls)[name]
            ways[name]["alone_ns"] = float(np.median([one["ns"] for one in apart]))
    return {**case.facts, "rounds": max(map(len, taken.values())), "calls": calls, "ways": ways}


def summary(case: Case, name: str, taken: Mapping[str, list[Sample]]) -> dict[str, Any]:
    """What is said of a way; the first kind of number in a sample is the one that is compared."""
    own, base = taken[name], taken.get(case.base, [])
    found: dict[str, Any] = {what: float(case.centre([one[what] for one in own])) for what in own[0]}
    main = next(iter(found))
    values, others = (np.array([one[main] for one in each]) for each in (own, base))
    if len(own) > 1:
        found |= {f"quartiles_{main}": np.percentile(values, (25, 75)).tolist(), f"min_{main}": float(values.min())}
    if base and name != case.base:
        if len(own) == len(base) > 1 and case.centre is np.median:
            ratios = values / others
            found |= {"ratio": float(np.median(ratios)), "ratio_quartiles": np.percentile(ratios, (25, 75)).tolist()}
        else:
            found["ratio"] = float(case.centre(values) / case.centre(others))
        if "cpu_ns" in found and "cpu_ns" in base[0] and not case.facts.get("workers"):
            by_cpu = float(np.median([one["cpu_ns"] for one in own]) / np.median([one["cpu_ns"] for one in base]))
            if not 1 / BUSY <= found["ratio"] / by_cpu <= BUSY:
                found["busy_cpu_ratio"] = by_cpu
    if "bytes" in case.facts:
        found["gigabytes_per_second"] = case.facts["bytes"] / found["ns"]
    return found


def slower(case: Case, record: Mapping[str, Any]) -> bool:
    """Whether quadrat takes longer than the first way, by more than a microsecond."""
    first, *_ = record.get("ways", {}).values() or [{}]
    ratio = first.get("busy_cpu_ratio", first.get("ratio", 0))
    return bool(case.least and ratio < case.least and first["ns"] / ratio - first["ns"] > 1000)


def has_gil() -> bool:
    return getattr(sys, "_is_gil_enabled", lambda: True)()  # type: ignore[no-any-return]


def machine() -> dict[str, Any]:
    """The processors and the versions that a result depends on."""
    found: dict[str, Any] = {}
    with contextlib.suppress(ImportError):  # an interpreter without the GIL may lack it
        import cpuinfo  # type: ignore[import-untyped]

        cpu = cpuinfo.get_cpu_info()
        # Virtual machines often cut the model off the name; family and model still tell the generation.
        found = {"cpu": cpu.get("brand_raw", "unknown"), "cpu_family": cpu.get("family"), "cpu_model": cpu.get("model")}
    found |= {"architecture": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    libraries = "torch", "numpy", "transformers", "quadrat", "pyarrow", "datasets", "trl"
    found |= {name: version(name) for name in libraries}
    found["gil"] = has_gil()
    if GPU:
        from quadrat import _cuda  # not in every build

        found |= {"gpu": torch.cuda.get_device_name(), "cuda": _cuda.description()}
    return {name: value for name, value in found.items() if value != "not installed"}
