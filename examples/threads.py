"""Load batches in threads instead of worker processes: one copy of the data, and no batch travels between processes.

Each batch is a call of quadrat in a thread of a pool; the loader gives them in order, a few ahead. With `--torchdata`
it is made of torchdata's nodes (`pip install torchdata`), which can also sample, prefetch and keep a state. The rows
come as Python lists and from an Arrow column. Masks are drawn by counter (`rng="philox"`): they depend on the row, not
on the thread, so that batches are the same with any number of threads. The script checks this.

On free-threaded CPython (3.14t) the threads work side by side. With the GIL they do so only in long copies, for which
quadrat gives it up. The script needs no transformers, and takes a few seconds.

    python examples/threads.py
    python examples/threads.py --threads 4 --rows 64 --torchdata
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pyarrow as pa
import torch

import quadrat

VOCABULARY = 30_000
Key, Batch = TypeVar("Key"), TypeVar("Batch")


def in_threads(make: Callable[[Key], Batch], keys: Iterable[Key], threads: int) -> Iterator[Batch]:
    """`make(key)` for each key, in order; up to four batches a thread are made ahead."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Batch]] = deque()
        for key in keys:
            waiting.append(pool.submit(make, key))
            if len(waiting) > 4 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def in_nodes(make: Callable[[Key], Batch], keys: Iterable[Key], threads: int) -> Iterator[Batch]:
    """The same with torchdata."""
    from torchdata import nodes

    mapped = nodes.ParallelMapper(nodes.IterableWrapper(keys), make, num_workers=threads, method="thread")
    return iter(nodes.Loader(mapped))


def masked(ids: torch.Tensor, lengths: np.ndarray, keys: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch and its labels."""
    options = {"mask_token_id": 4, "vocab_size": VOCABULARY, "rng": "philox", "row_keys": keys, "lengths": lengths}
    ids, labels = quadrat.mask_tokens(ids, **options)
    return ids, labels


def main() -> None:
    """Times both sources with one thread and with several."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=32, help="of a batch")
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--torchdata", action="store_true", help="a loader of torchdata's nodes")
    options = parser.parse_args()
    load = in_nodes if options.torchdata else in_threads
    torch.set_num_threads(1)  # of each thread of the pool

    random = np.random.default_rng(0)
    lengths = random.integers(64, 512, 4096)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = random.integers(5, VOCABULARY, offsets[-1])
    column = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(tokens))
    lists = column.to_pylist()
    arrow = quadrat.Ragged(column.values.to_numpy(), column.offsets.to_numpy())  # the same memory

    def from_lists(keys: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        return masked(quadrat.pad([lists[key] for key in keys], return_tensors="pt"), lengths[keys], keys)

    def from_arrow(keys: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        return masked(quadrat.pad(arrow[keys], return_tensors="pt"), lengths[keys], keys)

    order = [random.integers(0, len(lengths), options.rows) for _ in range(options.batches)]
    print(f"the GIL is {'on' if getattr(sys, '_is_gil_enabled', lambda: True)() else 'off'}")
    expected = [from_lists(keys) for keys in order]
    for name, make in (("lists", from_lists), ("Arrow", from_arrow)):
        rates = {}
        for threads in (1, options.threads):
            start = time.perf_counter()
            batches = list(load(make, order, threads))
            rates[threads] = len(batches) / (time.perf_counter() - start)
            same = all(all(map(torch.equal, batch, other)) for batch, other in zip(batches, expected, strict=True))
            if not same:
                raise SystemExit(f"batches from {name} differ with {threads} threads")
        text = ", ".join(f"{threads} threads: {rate:,.0f} batches a second" for threads, rate in rates.items())
        print(f"from {name}: {text}; ratio {rates[options.threads] / rates[1]:.2f}")
    print("All batches are identical.")


if __name__ == "__main__":
    main()
