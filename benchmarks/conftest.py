"""Fixtures that time the ways of a job, what a report says of the machine, and what `make test` leaves out."""

import gc
import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
import torch

import quadrat
from benchmarks import jobs
from benchmarks.jobs import Call, Job, has_gil
from quadrat.support.extras import version

LIBRARIES = ("torch", "numpy", "transformers", "quadrat", "pyarrow", "datasets", "trl")
_prepared: dict[Any, Job] = {}


def pytest_configure(config: Any) -> None:
    jobs.TRIED = config.getoption("benchmark_disable")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Add the versions that a result depends on, and the GPU."""
    machine_info |= {name: release for name in LIBRARIES if (release := version(name)) != "not installed"}
    machine_info |= {"gil": has_gil(), "cores": os.cpu_count()}
    if torch.cuda.is_available():
        from quadrat import _cuda  # not in every build

        machine_info |= {"gpu": torch.cuda.get_device_name(), "cuda": _cuda.description()}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def patched_datasets() -> Iterator[None]:
    with quadrat.data.patch_datasets():  # the reference's features come from the original all the same
        yield


def prepare(request: Any, benchmark: Any, make: Callable[[], Job], said_as: str) -> Job:
    """The job of the test's group: made, and its ways compared, once, for its tests come one after the other."""
    case, kind = request.node.callspec.params["case"], said_as.removesuffix("ns").rstrip("_")
    key = request.node.originalname, request.path, case
    if key not in _prepared:
        _prepared.clear()
        gc.collect()
        job = make()
        job.compare()
        _prepared[key] = job
    job = _prepared[key]
    benchmark.group = ", ".join(filter(None, (f"{request.path.stem.removeprefix('test_')}: {case}", kind)))
    benchmark.extra_info |= {"facts": dict(job.facts), "said_as": said_as}
    return job


@pytest.fixture
def in_turn(benchmark: Any, request: Any) -> Callable[..., Any]:
    """A function that times one way to do a job, in turn with the others.

    in_turn(make, way, *, least=None, seconds=None, shortest=0, said_as="ns")

    make: makes the `Job`, once for all tests of the parameter `case`; all ways are compared before one is timed. way:
    the name of the way that this test is about. Before each round, pytest-benchmark's `setup` calls all other ways,
    untimed: so changes in the machine's speed affect all alike, and each finds the CPU caches as the others leave them.

    extra_info gets the facts of the job, `ratio` (the median of the ratios of this way's time to that of the base in
    the same round) and `ratio_quartiles`. There are at least `least` rounds, and as many as take `seconds` with those
    of the others (--benchmark-min-rounds and --benchmark-max-time). A round has calls in a row, so many that the first
    way takes `shortest` seconds for them.

    said_as: the name of these times in what results.py writes.

    With --benchmark-disable the ways are compared, and nothing is timed.
    """

    def measure(
        make: Callable[[], Job],
        way: str,
        *,
        least: int | None = None,
        seconds: float | None = None,
        shortest: float = 0,
        said_as: str = "ns",
    ) -> None:
        job = prepare(request, benchmark, make, said_as)
        marker = request.node.get_closest_marker("benchmark")
        timer = (marker.kwargs if marker else {}).get("timer", perf_counter)
        names = list(job.ways)
        at = names.index(way)
        others = [name for name in names[at + 1 :] + names[:at] if name not in job.slow]
        entered, base = ExitStack(), []

        def turn(name: str, calls: int) -> float:
            call = job.ways[name]
            with job.context(name):
                start = timer()
                for _ in range(calls):
                    call()
                return timer() - start

        def call_others() -> None:
            spent = {name: turn(name, calls) for name in others}
            base.append(spent.get(job.base))
            entered.enter_context(job.context(way))

        if benchmark.disabled:
            benchmark.pedantic(lambda: None)  # the ways have been compared, and so called
            return
        calls = math.ceil(shortest / min(turn(names[0], 1) for _ in range(3))) if shortest else 1
        option = request.config.getoption
        rounds = option("benchmark_min_rounds") if least is None else least
        if way in job.slow:
            rounds = 1
        elif timer is perf_counter:
            cycle = sum(turn(name, calls) for name in (*others, way))
            time = float(option("benchmark_max_time") if seconds is None else seconds)
            rounds = max(rounds, min(int(time / cycle), 1000))
        target = repeated(job.ways[way], calls)
        benchmark.pedantic(target, setup=call_others, teardown=entered.close, rounds=rounds)
        benchmark.extra_info["factor"] = job.factor(way) / calls
        if way != job.base and None not in base:
            ratios = np.array(benchmark.stats.stats.data) / base * (job.factor(way) / job.factor(job.base))
            quartiles = np.percentile(ratios, (25, 75)).tolist()
            benchmark.extra_info |= {"ratio": float(np.median(ratios)), "ratio_quartiles": quartiles}

    return measure


@pytest.fixture
def alone(benchmark: Any, request: Any) -> Callable[..., Any]:
    """A function that times one way by itself, call after call, as pytest-benchmark does: `alone(make, way)`.

    said_as: what `extra_info` says that these times are, if the ways are in turn, too.
    """

    def measure(make: Callable[[], Job], way: str, *, said_as: str = "ns") -> None:
        job = prepare(request, benchmark, make, said_as)
        benchmark.extra_info["factor"] = job.factor(way)
        benchmark(job.ways[way] if benchmark.enabled else lambda: None)

    return measure


def repeated(call: Call, calls: int) -> Call:
    """What makes so many calls; what they return is freed within their time."""

    def several() -> None:
        for _ in range(calls):
            call()

    return several
