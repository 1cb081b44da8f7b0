"""Memory that a batch needs apart from its tensors, for batches of ten thousand to a million tokens.

Measured is how far the heap grows during one call. The program starts itself anew with glibc and Python set so that
every allocation of C, C++, Python, NumPy and torch goes through `malloc` and every `malloc` onto one heap, which
never shrinks by itself. All free memory of that heap is taken away before the call, so nothing is reused: the growth
is the peak of what was in use at one time, with the tensors, alignment and fragmentation in it. Its resolution is a
page. The call before it collated a small batch, so that buffers kept from call to call count as well.

Not measured are stacks and memory mapped around `malloc`.
"""

import argparse
import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

KINDS = ("lists", "numpy")
SIZES = [10_000, 100_000, 1_000_000]
ALLOCATOR = {
    "PYTHONMALLOC": "malloc",
    "GLIBC_TUNABLES": ":".join(
        f"glibc.malloc.{name}={value}"
        for name, value in {
            "mmap_max": 0,
            "trim_threshold": 2**40,
            "top_pad": 0,
            "tcache_count": 0,
            "mxfast": 0,
            "arena_max": 1,
        }.items()
    ),
}
LARGEST_GAP = 2**28


class MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


class Heap:
    """The heap of this process."""

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None)
        if not hasattr(self.libc, "mallinfo2"):
            raise SystemExit("needs glibc 2.33 or newer")
        self.libc.mallinfo2.restype = MallocInfo
        self.libc.malloc.restype = ctypes.c_void_p
        self.libc.malloc.argtypes = [ctypes.c_size_t]
        self.libc.free.argtypes = [ctypes.c_void_p]
        self.libc.sbrk.restype = ctypes.c_void_p
        self.libc.sbrk.argtypes = [ctypes.c_ssize_t]

    def size(self) -> int:
        return int(self.libc.mallinfo2().arena)

    def free_bytes(self) -> int:
        return int(self.libc.mallinfo2().fordblks)

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
        from quadrat import _core

        _core.trim()
        self.exhaust()
        before = self.size()
        batch = collate(features)
        return self.size() - before, batch


def output_bytes(batch: Any) -> int:
    storages = {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes() for value in batch.values()}
    return sum(storages.values())


def measure(sizes: list[int]) -> list[dict[str, Any]]:
    import torch

    from cases import padding, token_rows

    torch.set_num_threads(1)
    heap = Heap()
    results = []
    for kind in KINDS:
        for tokens in [1000, *sizes]:
            rows = token_rows(tokens)
            features = [{"input_ids": row.tolist() if kind == "lists" else row} for row in rows]
            case = padding(kind, "", features)
            for collator, collate in (("transformers", case.reference), ("quadrat", case.quadrat)):
                growth, batch = heap.growth(collate, features)
                results.append(
                    {
                        "collator": collator,
                        "kind": kind,
                        "tokens": tokens,
                        "rows": len(rows),
                        "output_bytes": output_bytes(batch),
                        "peak_bytes": growth,
                    }
                )
                del batch
    return [result for result in results if result["tokens"] in sizes]


def show(results: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.filesize import decimal
    from rich.table import Table

    from measure import terminal

    view = Table("rows as", "collator", box=box.SIMPLE_HEAD)
    for heading in ("tokens", "tensors", "peak", "extra", "extra bytes per token"):
        view.add_column(heading, justify="right")
    for result in sorted(results, key=lambda result: (result["kind"], result["collator"], result["tokens"])):
        extra = result["peak_bytes"] - result["output_bytes"]
        view.add_row(
            result["kind"],
            result["collator"],
            f"{result['tokens']:,}",
            decimal(result["output_bytes"]),
            decimal(result["peak_bytes"]),
            decimal(extra),
            f"{extra / result['tokens']:.2f}",
        )
    terminal().print(view)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=SIZES, help="tokens of the batches")
    parser.add_argument("--out", type=Path, help="folder of memory.json (default: results/)")
    arguments = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        # The allocator reads its settings when the process starts.
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **ALLOCATOR})
    results = measure(sorted(arguments.tokens))
    show(results)
    from measure import machine
    from report import RESULTS

    out = arguments.out or RESULTS
    out.mkdir(parents=True, exist_ok=True)
    (out / "memory.json").write_text(json.dumps({"machine": machine(), "batches": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
