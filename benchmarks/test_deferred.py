"""Batches that are padded on the GPU beside batches that are padded on the CPU, end to end.

Rows of real length distribution, 32 a batch of up to 512 tokens, go through a pinned `DataLoader` to the GPU, by the
collator of transformers, by quadrat's, and by quadrat's with `deferred=True`; then the same loaders feed a small
encoder. Without a GPU, `make test` tries small cases on the CPU.
"""

import itertools
from collections.abc import Callable
from functools import cache, partial
from time import perf_counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from transformers import BertConfig, BertModel

import quadrat
from benchmarks.jobs import Job, each, report, reported, same, size, synchronised
from benchmarks.workload import MAX_LENGTH, ROWS, pair, tokenizer
from quadrat.deferred import DeferredBatch

HAS_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if HAS_GPU else "cpu")
VOCABULARY = 30_000


@cache
def rows(count: int) -> list[dict[str, list[int]]]:
    """Rows of log-normal length, as texts have, cut at `MAX_LENGTH`; every batch has one of that length."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(5.2, 0.7, count).astype(int), 8, MAX_LENGTH)
    lengths[::ROWS] = MAX_LENGTH
    ids = [random.integers(2, VOCABULARY, length).tolist() for length in lengths]
    return [{"input_ids": row, "token_type_ids": [0] * len(row), "attention_mask": [1] * len(row)} for row in ids]


@cache
def collators() -> dict[str, Any]:
    reference, ours = pair("DataCollatorWithPadding")
    deferred = quadrat.DataCollatorWithPadding(tokenizer(), deferred=True)
    return {"transformers": reference, "quadrat": ours, "deferred": deferred}


def check(dataset: list[Any]) -> None:
    for first in range(0, 4 * ROWS, ROWS):
        expected, *others = (each(dataset[first : first + ROWS]).to(DEVICE) for each in collators().values())
        for other in others:
            same(expected, other)


def bytes_that_travel(batch: Any) -> int:
    return batch.nbytes if isinstance(batch, DeferredBatch) else sum(value.nbytes for value in batch.values())


def loader(dataset: list[Any], collate: Any, workers: int) -> DataLoader[Any]:
    in_workers = {"num_workers": workers, "persistent_workers": True, "prefetch_factor": 4} if workers else {}
    batches = {"batch_size": ROWS, "shuffle": True, "drop_last": True}
    return DataLoader(dataset, collate_fn=collate, pin_memory=HAS_GPU, **batches, **in_workers)


def used(source: DataLoader[Any], use: Callable[[Any], Any], seconds: float, warm_up: int) -> None:
    """Report the time of a batch, epoch after epoch for so many seconds, once the workers have been started."""
    for batch in itertools.islice(source, warm_up):
        use(batch.to(DEVICE, non_blocking=True))
    count, begin = 0, synchronised()
    end = perf_counter() + seconds
    while perf_counter() < end:
        for batch in source:
            use(batch.to(DEVICE, non_blocking=True))
            count += 1
            if perf_counter() >= end:
                break
    report((synchronised() - begin) / count)


@cache
def encoder() -> Any:
    """Four layers of 256, mean pooling."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=MAX_LENGTH, **sizes)
    dtype = torch.bfloat16 if HAS_GPU else torch.float32
    model = BertModel(config, add_pooling_layer=False).to(DEVICE, dtype).eval()

    @torch.inference_mode()
    def embed(batch: Any) -> torch.Tensor:
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        return (hidden * mask).sum(1) / mask.sum(1)

    return embed


def through(part: str, workers: int) -> Job:
    dataset = rows(ROWS * size(512, 16))
    use = encoder() if part == "embedding" else lambda batch: batch
    sources = {name: loader(dataset, collate, workers) for name, collate in collators().items()}
    sizes = {name: bytes_that_travel(collate(dataset[3 * ROWS : 4 * ROWS])) for name, collate in collators().items()}
    ways = {name: partial(used, source, use, *size((2, 50), (0.01, 1))) for name, source in sources.items()}
    facts = {"part": part, "workers": workers, "rows": ROWS, "max_length": MAX_LENGTH, "travel": sizes}
    return Job(ways, facts, base="deferred", check=partial(check, dataset))


CASES = {f"{part}, {workers} workers": (part, workers) for part in ("loading", "embedding") for workers in (0, 2, 4, 8)}


@pytest.mark.cuda
@pytest.mark.benchmark(timer=reported)
@each(CASES, ("transformers", "quadrat", "deferred"), small=1)
def test_deferred(in_turn: Any, case: str, way: str) -> None:
    if not HAS_GPU and size(True, False):
        pytest.skip("needs a GPU")
    in_turn(partial(through, *CASES[case]), way, least=2)
