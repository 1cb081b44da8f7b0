"""Streams of `datasets`: the time of a row, and of going on behind many."""

import json
import tempfile
from collections import deque
from collections.abc import Iterator
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from accelerate import Accelerator, skip_first_batches
from torch.utils.data import DataLoader
from transformers import TrainerState

import quadrat
from benchmarks.jobs import Job, same, size, timed
from benchmarks.workload import MIN_LENGTH, encode, pair, token_ids, tokenizer
from quadrat.integration.resume import STORED, Tracker

BATCH = 32
MAX_TOKENS = 8192


@cache
def stored() -> datasets.Dataset:
    """The rows of the corpus, in random order."""
    chosen = [index for index, ids in enumerate(token_ids()) if len(ids) >= MIN_LENGTH]
    return datasets.Dataset.from_list([dict(encode(index)) for index in np.random.default_rng(0).permutation(chosen)])


def drained(routes: dict[str, Any], per: int, **options: Any) -> Job:
    """Routes that are iterated over, from the beginning each time."""
    return Job({name: lambda route=route: deque(route(), 0) for name, route in routes.items()}, per=per, **options)


def padded() -> Job:
    stream, (reference, ours) = stored().to_iterable_dataset(), pair("DataCollatorWithPadding")

    def patched() -> Iterator[Any]:
        with quadrat.data.patch_datasets():
            yield from DataLoader(stream, BATCH, collate_fn=ours)

    routes = {
        "transformers": lambda: DataLoader(stream, BATCH, collate_fn=reference),
        "quadrat, not patched": lambda: DataLoader(stream, BATCH, collate_fn=ours),
        "quadrat": patched,
    }

    def check() -> None:
        for reference, *others in zip(*(route() for route in routes.values()), strict=True):
            for other in others:
                same(reference, other)

    return drained(routes, len(stored()), check=check)


def planned(of_a_stream: Any, of_a_dataset: Any, collate: Any, **options: Any) -> Job:
    """The batches of the two differ; all their tokens are the same."""
    routes = {
        "of a stream": lambda: DataLoader(of_a_stream(), collate_fn=collate, **options),
        "of a dataset": lambda: DataLoader(of_a_dataset, batch_size=1, collate_fn=collate),
    }

    def check() -> None:
        total, other = (sum(int(batch["input_ids"].sum()) for batch in route()) for route in routes.values())
        assert total == other

    return drained(routes, len(stored()), base="of a dataset", check=check)


def budget() -> Job:
    stream, collator = stored().to_iterable_dataset(), quadrat.DataCollatorWithPadding(tokenizer())
    sampler = quadrat.TokenBudgetBatchSampler(quadrat.lengths(stored()), MAX_TOKENS)
    batches = quadrat.data.BatchedDataset(stored(), sampler)
    return planned(lambda: quadrat.BatchedStream(stream, MAX_TOKENS), batches, collator, batch_size=None)


def packs() -> Job:
    stream, packed = stored().to_iterable_dataset(), quadrat.PackedDataset(stored(), MAX_TOKENS)
    return planned(lambda: quadrat.data.PackedStream(stream, MAX_TOKENS), packed, quadrat.DataCollatorWithFlattening())


def resumed(rows: int) -> Job:
    """The first batch of a Trainer that goes on behind so many rows of a stream on disk."""
    folder, draw = tempfile.TemporaryDirectory(), np.random.default_rng(0)
    for part in range(13):  # the last one is behind them
        offsets = np.append(0, draw.integers(1, 16, rows // 12).cumsum())
        ids = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(draw.integers(1000, 30000, offsets[-1])))
        pq.write_table(pa.table({"input_ids": ids}), f"{folder.name}/{part:02}.parquet")
    stream = datasets.load_dataset("parquet", data_dir=folder.name, split="train", streaming=True)
    args = SimpleNamespace(world_size=1, gradient_accumulation_steps=1, process_index=0, ignore_data_skip=False)

    def loader(_: Any = folder) -> Any:  # the files live as long
        batches = quadrat.BatchedStream(stream, MAX_TOKENS)
        return Accelerator(cpu=True).prepare(DataLoader(batches, 1, collate_fn=pair("DataCollatorWithPadding")[1]))

    first, steps, read = loader(), 0, 0
    state = TrainerState()
    tracker: Any = Tracker.follow(first, args, state)
    tracker.begin(0)
    batches = iter(first)
    while read < rows:
        read, steps = read + len(next(batches)["input_ids"]), steps + 1
        tracker.step()
    tracker.store()
    stored = json.dumps(state.stateful_callbacks[STORED])

    def resume() -> Any:
        again = loader()
        tracker: Any = Tracker.follow(again, args, TrainerState())
        tracker.resume(json.loads(stored))
        tracker.begin(0)
        return next(iter(again))

    skip = lambda: next(iter(skip_first_batches(loader(), steps)))  # noqa: E731
    return Job({"transformers": skip, "quadrat": resume}, {"skipped": rows}, slow=("transformers",))


PLANNED = {"batches by token budget, a row": budget, "packs, a row": packs}
RESUMED = {"a Trainer that goes on after 3,000,000 rows on disk": partial(resumed, size(3_000_000, 30_000))}
LOADED = {"DataLoader over an IterableDataset, a row": padded}
test_padded = timed(LOADED, ("transformers", "quadrat, not patched", "quadrat"))
test_planned = timed(PLANNED, ("of a stream", "of a dataset"))
test_resumed = timed(RESUMED)
