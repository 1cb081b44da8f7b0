"""Calls in several threads at a time."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

THREADS = 16


def together(*calls: Callable[[], Any]) -> list[Any]:
    """The results of calls that begin at once, each in a thread of its own, often switched. Raises the first error."""
    start, before = threading.Barrier(len(calls)), sys.getswitchinterval()

    def begin(call: Callable[[], Any]) -> Any:
        start.wait()
        return call()

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(calls)) as pool:
            begun = [pool.submit(begin, call) for call in calls]
            return [future.result() for future in begun]
    finally:
        sys.setswitchinterval(before)


def everywhere(call: Callable[[int], Any]) -> list[Any]:
    """The results of a call in each of `THREADS` threads; it is given the number of the thread."""
    return together(*[lambda number=number: call(number) for number in range(THREADS)])
