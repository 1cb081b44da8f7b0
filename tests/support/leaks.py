"""Whether memory grows with the batches that are made, or that fail: `make leaks`.

    python -m support.leaks [--batches 200000] [--failures 20000] [--only PATTERN] [--processes 1]

Prints what each kind of batch has left after so many. The exit status is 1 if something grows.

Each is called a tenth as often first, so that all caches are full. Then the second half of the calls is looked at: what
is left by each call, or by one in a hundred, is left in every half, while memory that is laid out anew, or a cache that
fills, shows in one half at most and is not taken for growth unless it goes on.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import ctypes
import functools
import gc
import itertools
import multiprocessing
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset

import quadrat
from quadrat import _core
from support import failures, owners, works
from support.strategies import make_tokenizer

_PAGE = os.sysconf("SC_PAGE_SIZE")
say = functools.partial(print, flush=True)


class _Malloc(ctypes.Structure):
    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


_libc = ctypes.CDLL(None)
_mallinfo = getattr(_libc, "mallinfo2", None)
if _mallinfo is not None:
    _mallinfo.restype = _Malloc


class Held(NamedTuple):
    resident: int  # bytes
    allocated: int  # bytes of malloc
    blocks: int  # of Python's allocator
    objects: int  # that the garbage collector knows
    descriptors: int
    files: int  # of its shared memory

    def __sub__(self, other: tuple[Any, ...]) -> Held:
        return Held(*(a - b for a, b in zip(self, other, strict=True)))


def held() -> Held:
    """What this process holds, with nothing that waits to be freed."""
    gc.collect()
    _core.trim()
    if _mallinfo is not None:
        _libc.malloc_trim(0)
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * _PAGE
    info = _mallinfo() if _mallinfo is not None else None
    allocated = info.uordblks + info.hblkhd if info is not None else 0
    files = [name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{os.getpid()}_")]
    objects, descriptors = len(gc.get_objects()), len(os.listdir("/proc/self/fd"))
    return Held(resident, allocated, sys.getallocatedblocks(), objects, descriptors, len(files))


def allowed(batches: int) -> Held:
    """What may come in so many batches: less than one small object in a hundred batches, and what varies by itself."""
    few = batches // 100
    return Held((1 << 20) + batches, (16 << 10) + batches // 4, 256 + few, 16 + few, 8 + few, 4 + few)


@dataclass(frozen=True)
class Result:
    what: str
    batches: int
    seconds: float
    first: Held
    second: Held

    @property
    def grows(self) -> list[str]:
        half = self.batches // 2
        return [
            name
            for name, first, second, most in zip(Held._fields, self.first, self.second, allowed(half), strict=True)
            if second > most and first > most // 2
        ]

    def line(self) -> str:
        total = Held(*(a + b for a, b in zip(self.first, self.second, strict=True)))
        cells = (
            f"{self.what:58}{self.batches:>9,}{total.resident:>12,}{total.allocated:>10,}{total.blocks:>8,}"
            f"{total.objects:>8,}{total.descriptors:>4}{total.files:>6}{total.allocated / self.batches:>9.2f}"
            f"{self.seconds:>9.1f}"
        )
        return f"{cells}  {'GROWS: ' + ', '.join(self.grows) if self.grows else 'ok'}"


HEADING = (
    f"{'what':58}{'batches':>9}{'resident':>12}{'malloc':>10}{'blocks':>8}{'objects':>8}{'fds':>4}{'files':>6}"
    f"{'B/batch':>9}{'seconds':>9}"
)


class FromWorker(Dataset[Any]):
    """Batches from a worker process, one in a hundred of which fails there."""

    def __init__(self, rows: int, strategy: str) -> None:
        self.rows, self.strategy = [{"input_ids": [5] * 512, "token_type_ids": [0] * 512}] * rows, strategy
        self.asked = multiprocessing.Value("i", 0)
        self.collator = quadrat.DataCollatorWithPadding(make_tokenizer())

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Any:
        """In the worker: a batch, or what the worker holds where it is asked."""
        if self.asked.value:
            self.asked.value = 0
            time.sleep(0.1)  # batches on their way take memory of their own
            return held()
        return self.collator(
            [*self.rows, {"input_ids": [[5]], "token_type_ids": [0]}] if index % 100 == 99 else self.rows
        )

    @functools.cached_property
    def batches(self) -> Iterator[Any]:
        torch.multiprocessing.set_sharing_strategy(self.strategy)
        return iter(DataLoader(self, batch_size=None, num_workers=1, multiprocessing_context="fork"))

    def __call__(self) -> Any:
        return next(self.batches)

    def held(self) -> Held:
        """What both processes hold."""
        self.asked.value = 1
        there = None
        while type(there) is not Held:
            with contextlib.suppress(ValueError):  # of a batch that fails
                there = self()
        return Held(*map(sum, zip(held(), there, strict=True)))


def measure(what: str, calls: Sequence[Callable[[], Any]], batches: int) -> Result:
    turn = itertools.cycle(calls)
    repeat(turn, max(batches // 10, 2 * len(calls), 50))
    began = time.monotonic()
    # Looking needs memory itself, which it has after the first look.
    look = getattr(next(iter(calls), None), "held", held)
    look()
    looks = [look()]
    for _ in range(2):
        repeat(turn, batches // 2)
        looks.append(look())
    return Result(what, batches, time.monotonic() - began, looks[1] - looks[0], looks[2] - looks[1])


def repeat(turn: Any, count: int) -> None:
    for call in itertools.islice(turn, count):
        try:  # noqa: SIM105 - suppress would cost more
            call()
        except BaseException:
            pass


@functools.cache
def jobs(batches: int, failed: int, pattern: str = "") -> list[tuple[str, list[Callable[[], Any]], int]]:
    """What is measured: (what, calls, how many). The same in each process that measures."""
    warnings.simplefilter("ignore")
    collating = [*works.collators(), *works.collators_with_options()]
    listed = [(work.name, [work.call], batches) for work in collating]
    listed += [(work.name, [work.call], max(batches // 4, 1)) for work in works.functions()]
    listed += [(f"owner: {name}", [call], max(batches // 100, 40)) for name, call in owners.owners().items()]
    listed += [(f"fails: {name}", calls, failed) for name, calls in failures.everything()]
    for rows, how in ((4, "by value"), (32, "shared memory")):
        for strategy in ("file_descriptor", "file_system"):
            listed.append((f"worker: {how}, {strategy}", [FromWorker(rows, strategy)], batches))
    gc.collect()
    gc.freeze()
    return [job for job in listed if re.search(pattern, job[0])]


def measure_job(asked: tuple[int, int, str], number: int) -> Result:
    return measure(*jobs(*asked)[number])


def be_main() -> None:
    """Collators that draw ask a process for its name, and take another one for a worker of a DataLoader."""
    multiprocessing.current_process().name = "MainProcess"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What batches leave behind.")
    parser.add_argument("--batches", type=int, default=200_000, help="of each collator; a quarter of each function")
    parser.add_argument("--failures", type=int, help="of each kind of failure (default: a tenth)")
    parser.add_argument("--only", default="", help="a regular expression")
    parser.add_argument("--processes", type=int, default=1, help="kinds measured at a time, each in one process")
    options = parser.parse_args(arguments)
    failed = options.batches // 10 if options.failures is None else options.failures
    asked = (options.batches, failed, options.only)
    say(HEADING)
    began = time.monotonic()
    results = []
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.processes, context, be_main) as pool:
        for result in pool.map(functools.partial(measure_job, asked), range(len(jobs(*asked)))):
            results.append(result)
            say(result.line())
    growing = [result for result in results if result.grows]
    count = sum(result.batches for result in results)
    say(f"\n{count:,} batches in {time.monotonic() - began:.0f} s; {len(growing)} of {len(results)} kinds grow")
    return bool(growing)


if __name__ == "__main__":
    raise SystemExit(main())
