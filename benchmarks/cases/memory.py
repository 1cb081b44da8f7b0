"""Memory that a batch needs apart from its tensors, for batches of ten thousand to a million tokens.

Measured is how far the heap grows during one call. The process for it is started with glibc and Python set so that
every allocation of C, C++, Python, NumPy and torch goes through `malloc` and every `malloc` onto one heap, which
never shrinks by itself. All free memory of that heap is taken away before the call, so nothing is reused: the growth
is the peak of what was in use at one time, with the tensors, alignment and fragmentation in it. Its resolution is a
page. The first calls collate a small batch, so that buffers kept from call to call count as well.

Not measured are stacks and memory mapped around `malloc`.
"""

import ctypes
import functools
from typing import Any

import torch

from benchmarks.measure import Case, Cases, own
from benchmarks.processes import apart
from benchmarks.workload import pair, token_rows
from quadrat import _core

KINDS = ("lists", "numpy")
SIDES = ("transformers", "quadrat")
SIZES = (10_000, 100_000, 1_000_000)
SMALL = 1000
OPTIONS = {"mmap_max": 0, "trim_threshold": 2**40, "top_pad": 0, "tcache_count": 0, "mxfast": 0, "arena_max": 1}
ALLOCATOR = {
    "PYTHONMALLOC": "malloc",
    "GLIBC_TUNABLES": ":".join(f"glibc.malloc.{name}={value}" for name, value in OPTIONS.items()),
}
LARGEST_GAP = 2**28


class MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc; its first number is the size of the heap."""

    _fields_ = [("numbers", ctypes.c_size_t * 10)]


class Heap:
    """The heap of this process."""

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None)
        if not hasattr(self.libc, "mallinfo2"):
            raise SystemExit("needs glibc 2.33 or newer")
        self.libc.mallinfo2.restype = MallocInfo
        self.libc.malloc.restype = self.libc.sbrk.restype = ctypes.c_void_p
        self.libc.malloc.argtypes = [ctypes.c_size_t]
        self.libc.free.argtypes = [ctypes.c_void_p]
        self.libc.sbrk.argtypes = [ctypes.c_ssize_t]

    def exhaust(self) -> None:
        """Take every free piece of the heap, the large ones first; they are never given back."""
        size = LARGEST_GAP
        while size >= 16:
            self.libc.malloc_trim(0)
            end = self.libc.sbrk(0)
            while True:
                piece = self.libc.malloc(size)
                if self.libc.sbrk(0) != end:
                    self.libc.free(piece)
                    break
            size //= 2
        self.libc.malloc_trim(0)

    def growth(self, collate: Any, features: list[Any]) -> tuple[int, Any]:
        """Bytes that the heap grows by during one call, and the batch."""
        _core.trim()
        self.exhaust()
        before = self.libc.mallinfo2().numbers[0]
        batch = collate(features)
        return self.libc.mallinfo2().numbers[0] - before, batch


def output_bytes(batch: Any) -> int:
    storages = {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes() for value in batch.values()}
    return sum(storages.values())


def in_this_process(sizes: list[int]) -> list[dict[str, Any]]:
    """Of each kind of rows and size, by side, the growth of the heap and the bytes of the tensors."""
    torch.set_num_threads(1)
    heap, collators = Heap(), pair("DataCollatorWithPadding")
    found = []
    for kind in KINDS:
        for tokens in [SMALL, *sizes]:
            features = [{"input_ids": row.tolist() if kind == "lists" else row} for row in token_rows(tokens)]
            samples = {}
            for side, collate in zip(SIDES, collators, strict=True):
                peak, batch = heap.growth(collate, features)
                samples[side] = {"peak_bytes": peak, "output_bytes": output_bytes(batch)}
                del batch
            found.append({"kind": kind, "tokens": tokens, "rows": len(features), "samples": samples})
    return found


@functools.cache
def measured(sizes: tuple[int, ...]) -> dict[tuple[str, int], dict[str, Any]]:
    found = apart(in_this_process, sizes, **ALLOCATOR)
    return {(facts["kind"], facts["tokens"]): facts for facts in found}


def heap(kind: str, tokens: int, sizes: tuple[int, ...]) -> Case:
    facts = dict(measured(sizes)[kind, tokens])
    ways = {side: functools.partial(dict, sample) for side, sample in facts.pop("samples").items()}
    return Case(ways, facts, stopwatch=own, rounds=1)


def cases(*, quick: bool) -> Cases:
    sizes = SIZES[: 1 if quick else None]
    return {
        f"{kind}, {tokens:,} tokens": functools.partial(heap, kind, tokens, sizes) for kind in KINDS for tokens in sizes
    }
