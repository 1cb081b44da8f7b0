"""Streams of `datasets` and batches from workers: microseconds a row or a batch, quadrat's beside transformers'.

Routes are timed alternately, pass by pass, on one thread; first, all batches are compared.
"""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import datasets
import numpy as np
import torch
import transformers
from torch.utils.data import DataLoader

import quadrat
from cases import MIN_LENGTH, encode, token_ids, tokenizer
from measure import check_same, machine, quiet, rounded, terminal
from quadrat.support import shared
from quadrat.support.memory import interop

RESULTS = Path(__file__).parent / "results"  # not that of `report`, which patches datasets
BATCH = 32
MAX_TOKENS = 8192
SMALL = 4  # rows of a small batch from a worker


def alternated(
    ways: dict[str, Callable[[], Iterable[Any]]], passes: int, per: int, clock: Callable[[], float] = perf_counter
) -> dict[str, float]:
    """Median microseconds of each way, for each of `per` rows or batches."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(passes):
        for name, make in ways.items():
            start = clock()
            for _ in make():
                pass
            times[name].append((clock() - start) / per * 1e6)
    return {name: float(np.median(found)) for name, found in times.items()}


def rows_of() -> datasets.Dataset:
    """The rows of the corpus, in random order."""
    chosen = [index for index, ids in enumerate(token_ids()) if len(ids) >= MIN_LENGTH]
    return datasets.Dataset.from_list([dict(encode(index)) for index in np.random.default_rng(0).permutation(chosen)])


def streams(passes: int) -> dict[str, dict[str, float]]:
    """A `DataLoader` over an `IterableDataset`, and batches by token budget of a stream and of a dataset."""
    stored = rows_of()
    stream = stored.to_iterable_dataset()
    reference = transformers.DataCollatorWithPadding(tokenizer())
    ours = quadrat.DataCollatorWithPadding(tokenizer())

    def patched() -> Iterable[Any]:
        with quadrat.patch_datasets():
            yield from DataLoader(stream, BATCH, collate_fn=ours)

    for expected, found in zip(DataLoader(stream, BATCH, collate_fn=reference), patched(), strict=True):
        check_same(expected, found)
    padded = {
        "transformers": lambda: DataLoader(stream, BATCH, collate_fn=reference),
        "quadrat, not patched": lambda: DataLoader(stream, BATCH, collate_fn=ours),
        "quadrat": patched,
    }
    sampler = quadrat.TokenBudgetBatchSampler(quadrat.lengths(stored), MAX_TOKENS)
    batches = quadrat.BatchedDataset(stored, sampler)
    budget = {
        "of a stream": lambda: DataLoader(quadrat.BatchedStream(stream, MAX_TOKENS), batch_size=None, collate_fn=ours),
        "of a dataset": lambda: DataLoader(batches, batch_size=1, collate_fn=ours),
    }
    flat, packed = quadrat.DataCollatorWithFlattening(), quadrat.PackedDataset(stored, MAX_TOKENS)
    packs = {
        "of a stream": lambda: DataLoader(quadrat.PackedStream(stream, MAX_TOKENS), batch_size=1, collate_fn=flat),
        "of a dataset": lambda: DataLoader(packed, batch_size=1, collate_fn=flat),
    }
    return {
        "DataLoader over an IterableDataset, a row": alternated(padded, passes, len(stored)),
        "batches by token budget, a row": alternated(budget, passes, len(stored)),
        "packs, a row": alternated(packs, passes, len(stored)),
    }


class Repeated(torch.utils.data.Dataset[Any]):
    """One small batch again and again."""

    def __init__(self, rows: list[dict[str, Any]], batches: int) -> None:
        self.rows, self.batches = rows, batches

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> list[dict[str, Any]]:
        return self.rows


def workers(passes: int, batches: int = 200) -> dict[str, dict[str, float]]:
    """A batch of three tensors from one worker: all of its time, and processor time of the main process."""
    rows = rows_of().select(range(SMALL)).to_list()
    usual = shared._BY_VALUE

    def as_torch_sends(_: int) -> None:
        interop().may_be_worker = False  # what quadrat asks whether this is a worker

    def loader(module: Any, by_value: int, start: Any = None) -> Any:
        shared._BY_VALUE = by_value  # workers are forked from here
        collator = module.DataCollatorWithPadding(tokenizer())
        options = {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "fork"}
        options["worker_init_fn"] = start
        made = DataLoader(Repeated(rows, batches), batch_size=None, collate_fn=collator, **options)
        next(iter(made))
        shared._BY_VALUE = usual
        return made

    loaders = {
        "transformers": loader(transformers, usual),
        "quadrat, a descriptor for each tensor": loader(quadrat, usual, as_torch_sends),
        "quadrat, one block of shared memory": loader(quadrat, -1),
        "quadrat": loader(quadrat, usual),
    }
    for one, *others in zip(*map(list, loaders.values()), strict=True):
        for other in others:
            check_same(one, other)
    ways: dict[str, Callable[[], Iterable[Any]]] = {name: lambda made=made: made for name, made in loaders.items()}
    return {
        "a small batch from a worker": alternated(ways, passes, batches),
        "the same, processor time of the main process": alternated(ways, passes, batches, process_time),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--json", type=Path, default=RESULTS / "streams.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with quiet():
        found = streams(options.passes) | workers(options.passes)
    console = terminal()
    for route, times in found.items():
        console.print(f"{route}: " + ", ".join(f"{name} {time:.1f} µs" for name, time in times.items()))
    options.json.write_text(json.dumps(rounded({"machine": machine(), "microseconds": found}), indent=2) + "\n")


if __name__ == "__main__":
    main()
