"""A function in a process of its own, and the memory of a process."""

import ctypes
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any


def apart(function: Callable[..., Any], *arguments: Any, start: str = "spawn") -> Any:
    """What a function returns in a process that ends after it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context(start)) as process:
        return process.submit(function, *arguments).result()


def together(function: Callable[..., Any], count: int, *arguments: Any) -> list[Any]:
    """The results of a function of a number and these arguments, in processes that run at once."""
    with ProcessPoolExecutor(count, multiprocessing.get_context("fork")) as processes:
        return [each.result() for each in [processes.submit(function, rank, *arguments) for rank in range(count)]]


def status(name: str) -> int:
    """Bytes of this process, as the system counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def grown(call: Callable[[], Any]) -> tuple[int, Any]:
    """The bytes by which this process is larger during a call, at the peak, and the result."""
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before would be used again, and not be counted
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = status("VmRSS")
    result = call()
    return status("VmHWM") - before, result
