"""Batches a second that one thread, two threads and two worker processes of a `DataLoader` make.

All ways are timed alternately; there are ten short passes of threads for one of the workers. Of each the best pass
counts, for another process on the machine only takes away; the processor time that the threads spend in a batch depends
less on others. First, the batches of all ways are compared. Nothing is done with the batches. Jobs of collators need
transformers; the others run on interpreters without it.

    python benchmarks/threads.py
    build/free-threaded-3.14/venv/bin/python benchmarks/threads.py
"""

import argparse
import importlib.util
import json
import os
import platform
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import DataLoader

import quadrat

RESULTS = Path(__file__).parent / "results"
VOCABULARY = 30_000
ROWS = 32
Keys = np.ndarray[Any, Any]
Make = Callable[[Keys], dict[str, torch.Tensor]]


def in_threads(make: Make, order: list[Keys], threads: int, keep: list[Any] | None = None) -> tuple[float, float]:
    """Batches a second that threads make, each of its own share, and the processor seconds of all. keep: takes them."""
    begin, spans, spent = threading.Barrier(threads), [], []

    def work(first: int) -> None:
        if hasattr(os, "sched_setaffinity"):  # else both may begin on one core, and a pass is short
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[first % len(cores)]})
        begin.wait()
        start, used = perf_counter(), thread_time()
        for at in range(first, len(order), threads):
            batch = make(order[at])
            if keep is not None:
                keep[at] = batch
        spent.append(thread_time() - used)
        spans.append((start, perf_counter()))

    pool = [threading.Thread(target=work, args=(first,)) for first in range(threads)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    return len(order) / (max(end for _, end in spans) - min(start for start, _ in spans)), sum(spent)


class _Made(torch.utils.data.Dataset[Any]):
    """The batches as the rows of a dataset, for workers."""

    def __init__(self, make: Make, order: list[Keys]) -> None:
        self.make, self.order = make, order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return self.make(self.order[index])


def jobs() -> dict[str, Make]:
    """What makes a batch of the rows with these numbers, from lists and from Arrow."""
    random = np.random.default_rng(0)
    lengths = random.integers(64, 512, 4096)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(random.integers(5, VOCABULARY, offsets[-1])))
    lists = ids.to_pylist()
    arrow = quadrat.Ragged(ids.values.to_numpy(), ids.offsets.to_numpy())

    def padded(rows: Any) -> torch.Tensor:
        return quadrat.pad(rows, return_tensors="pt")

    def masked(rows: Any, keys: Keys) -> dict[str, torch.Tensor]:
        options: Any = {"mask_token_id": 4, "vocab_size": VOCABULARY, "rng": "philox", "row_keys": keys}
        made = quadrat.mask_tokens(padded(rows), lengths=lengths[keys], **options)
        return dict(zip(("input_ids", "labels"), made, strict=True))

    found: dict[str, Make] = {
        "pad, lists": lambda keys: {"input_ids": padded([lists[key] for key in keys])},
        "pad, Arrow": lambda keys: {"input_ids": padded(arrow[keys])},
        "mask_tokens by counter, lists": lambda keys: masked([lists[key] for key in keys], keys),
        "mask_tokens by counter, Arrow": lambda keys: masked(arrow[keys], keys),
    }
    if importlib.util.find_spec("tokenizers") is not None:
        found |= collators(ids, lists)
    return found


def collators(ids: Any, lists: list[list[int]]) -> dict[str, Make]:
    """The collators of transformers' names, with an attention mask beside the ids."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    from quadrat.input.rows import Rows, table_of_arrow

    words = Tokenizer(models.WordLevel({f"w{at}": at for at in range(VOCABULARY)}, unk_token="w1"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", unk_token="w1", mask_token="w4")
    masks = pa.array([[1] * len(row) for row in lists])
    table = table_of_arrow(pa.table({"input_ids": ids, "attention_mask": masks}))
    rows = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in lists]
    pad = quadrat.DataCollatorWithPadding(tokenizer)
    mask: Any = quadrat.DataCollatorForLanguageModeling(tokenizer, rng="philox")

    def made(collator: Any, features: Any) -> dict[str, torch.Tensor]:
        return dict(collator(features))

    return {
        "DataCollatorWithPadding, lists": lambda keys: made(pad, [rows[key] for key in keys]),
        "DataCollatorWithPadding, Arrow": lambda keys: made(pad, Rows(table, keys.tolist())),
        "masking by counter, lists": lambda keys: made(mask, [rows[key] for key in keys]),
        "masking by counter, Arrow": lambda keys: made(mask, Rows(table, keys.tolist())),
    }


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def measured(make: Make, order: list[Keys], passes: int) -> dict[str, Any]:
    """The best rate of each way, and the processor time of a batch where all is done in this process."""
    expected = [make(keys) for keys in order]
    workers = DataLoader(_Made(make, order), None, num_workers=2, persistent_workers=True)
    found: dict[str, list[Any]] = {"2 workers": list(workers)}
    for threads in (1, 2):
        found[f"{threads} threads"] = made = [None] * len(order)
        in_threads(make, order, threads, made)
    for name, batches in found.items():
        if not all(same(one, two) for one, two in zip(batches, expected, strict=True)):
            raise AssertionError(f"other batches from {name}")
    found.clear()
    rates: dict[str, list[float]] = {"1 thread": [], "2 threads": [], "2 workers": []}
    costs: dict[str, list[float]] = {"1 thread": [], "2 threads": []}
    for _ in range(passes):
        for _ in range(10):
            for threads, name in enumerate(costs, 1):
                rate, used = in_threads(make, order, threads)
                rates[name].append(rate)
                costs[name].append(used / len(order) * 1e6)
        start = perf_counter()
        for _ in workers:
            pass
        rates["2 workers"].append(len(order) / (perf_counter() - start))
    best = {name: round(max(found)) for name, found in rates.items()}
    cost = {name: round(min(found), 1) for name, found in costs.items()}
    return {
        "batches_per_second": best,
        "two_threads_to_one": round(best["2 threads"] / best["1 thread"], 3),
        "two_workers_to_one_thread": round(best["2 workers"] / best["1 thread"], 3),
        "processor_microseconds": cost,
        "two_threads_to_one_by_processor_time": round(2 * cost["1 thread"] / cost["2 threads"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=15)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--json", type=Path, default=RESULTS / "threads.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    random = np.random.default_rng(1)
    order = [random.integers(0, 4096, ROWS) for _ in range(options.batches)]
    found = {}
    for name, make in jobs().items():
        found[name] = one = measured(make, order, options.passes)
        print(f"{name}: {one['batches_per_second']}, two threads {one['two_threads_to_one']} times one", flush=True)
    assert gil == getattr(sys, "_is_gil_enabled", lambda: True)(), "a library has switched the GIL on"
    versions = {name: importlib.import_module(name).__version__ for name in ("torch", "numpy", "pyarrow", "quadrat")}
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "gil": gil, **versions}
    known = json.loads(options.json.read_text()) if options.json.exists() else {}
    known["with the GIL" if gil else "without the GIL"] = {"machine": machine, "rows": ROWS, "jobs": found}
    options.json.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main()
