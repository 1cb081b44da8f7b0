"""How calls on a GPU are timed, and the case of a kernel beside a copy of as many bytes."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.measure import Call, Case, Sample, device


def between_events(call: Call) -> float:
    """The nanoseconds a call takes on the GPU, from an event before it to one after."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e6


def repeated(call: Call, calls: int) -> Call:
    def several() -> None:
        for _ in range(calls):
            call()

    return several


def in_a_row(call: Call, _: int, calls: int = 10) -> Sample:
    """Of a call among others that keep the GPU busy while the CPU launches the next."""
    return {"ns": between_events(repeated(call, calls)) / calls}


def sampled(call: Call, calls: int = 50) -> Callable[[], Sample]:
    """The time from call to call where nothing else is done, the CPU's part included; and in a CUDA graph, without it.

    What waits for the GPU is not captured in a graph.
    """
    replay = captured(call, 10)

    def sample() -> Sample:
        return device(call, calls) | ({} if replay is None else {"graph_ns": between_events(replay) / 10})

    return sample


def captured(call: Call, calls: int) -> Call | None:
    """What runs a CUDA graph of so many calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            repeated(call, calls)()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return graph.replay  # type: ignore[no-any-return]


def bandwidth(call: Call, bytes_moved: int, check: Callable[[Any], bool]) -> Case:
    """A kernel beside torch's copy within the GPU, by the bytes that must be read and those that must be written.

    Of either, ten are queued at a time, so that launches from the CPU are no part of the time. `check` gets the result.
    """
    source = torch.randint(0, 256, (bytes_moved // 2,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def right() -> None:
        assert check(call()), "wrong result"

    ways = {"copy": lambda: target.copy_(source), "quadrat": call}
    facts = {"part": "bandwidth", "bytes": bytes_moved}
    return Case(ways, facts, check=right, stopwatch=in_a_row, rounds=15)
