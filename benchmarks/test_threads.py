"""Batches that one thread, two threads and two worker processes of a `DataLoader` make.

The best pass of each way counts, for another process on the machine only takes away. Jobs of collators need
transformers; the others run on interpreters without it, and without the GIL:

    build/free-threaded-3.14/venv/bin/python -m pytest benchmarks/test_threads.py --benchmark-only
"""

import importlib.util
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import DataLoader

import quadrat
from benchmarks.jobs import Job, has_gil, report, reported, same, size, timed

VOCABULARY = 30_000
ROWS = 32
Keys = np.ndarray[Any, Any]
Make = Callable[[Keys], dict[str, torch.Tensor]]
LOCKED, TOKENIZERS = has_gil(), importlib.util.find_spec("tokenizers")


def in_threads(make: Make, order: list[Keys], threads: int, keep: list[Any] | None = None) -> None:
    """Report the time in which threads make batches, each its own share. keep: takes the batches."""
    begin, spans = threading.Barrier(threads), []

    def work(first: int) -> None:
        if hasattr(os, "sched_setaffinity"):  # else both may begin on one core, and a pass is short
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[first % len(cores)]})
        begin.wait()
        start = perf_counter()
        for at in range(first, len(order), threads):
            batch = make(order[at])
            if keep is not None:
                keep[at] = batch
        spans.append((start, perf_counter()))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    report(max(end for _, end in spans) - min(start for start, _ in spans))


@cache
def jobs() -> dict[str, Make]:
    """What makes a batch of the rows with these numbers, from lists and from Arrow."""
    random = np.random.default_rng(0)
    lengths = random.integers(64, 512, 4096)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(random.integers(5, VOCABULARY, offsets[-1])))
    lists, arrow = ids.to_pylist(), quadrat.Ragged(ids.values.to_numpy(), ids.offsets.to_numpy())
    padded = partial(quadrat.pad, return_tensors="pt")

    def masked(rows: Any, keys: Keys) -> dict[str, torch.Tensor]:
        options: Any = {"mask_token_id": 4, "vocab_size": VOCABULARY, "rng": "philox", "row_keys": keys}
        outputs = quadrat.mask_tokens(padded(rows), lengths=lengths[keys], **options)
        return dict(zip(("input_ids", "labels"), outputs, strict=True))

    makers: dict[str, Make] = {
        "pad, lists": lambda keys: {"input_ids": padded([lists[key] for key in keys])},
        "pad, Arrow": lambda keys: {"input_ids": padded(arrow[keys])},
        "mask_tokens by counter, lists": lambda keys: masked([lists[key] for key in keys], keys),
        "mask_tokens by counter, Arrow": lambda keys: masked(arrow[keys], keys),
    }
    return makers | collators(ids, lists) if TOKENIZERS else makers


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
    return {
        "DataCollatorWithPadding, lists": lambda keys: dict(pad([rows[key] for key in keys])),
        "DataCollatorWithPadding, Arrow": lambda keys: dict(pad(Rows(table, keys.tolist()))),
        "masking by counter, lists": lambda keys: dict(mask([rows[key] for key in keys])),
        "masking by counter, Arrow": lambda keys: dict(mask(Rows(table, keys.tolist()))),
    }


WORKS = ["pad", "mask_tokens by counter", *(["DataCollatorWithPadding", "masking by counter"] if TOKENIZERS else [])]


def job(name: str, batches: int) -> Job:
    make, random = jobs()[name], np.random.default_rng(1)
    order = [random.integers(0, 4096, ROWS) for _ in range(batches)]
    workers = DataLoader(order, None, collate_fn=make, num_workers=2, persistent_workers=True)

    def in_workers() -> None:
        start = perf_counter()
        deque(workers, 0)
        report(perf_counter() - start)

    def check() -> None:
        expected = [make(keys) for keys in order]
        same(expected, list(workers), "batches of workers")
        for threads in (1, 2):
            result: list[Any] = [None] * batches
            in_threads(make, order, threads, result)
            same(expected, result, f"batches of {threads} threads")
        assert has_gil() == LOCKED, "a library has switched the GIL on"

    single, double = (partial(in_threads, make, order, threads) for threads in (1, 2))
    ways = {"1 thread": single, "2 threads": double, "2 workers": in_workers}
    return Job(ways, {"rows": ROWS}, base="1 thread", check=check, per=batches)


NAMES = [f"{work}, {rows}" for work in WORKS for rows in ("lists", "Arrow")]
CASES = {name: partial(job, name, size(200, 20)) for name in NAMES}
test_threads = timed(CASES, ("1 thread", "2 threads", "2 workers"), timer=reported, least=15)
