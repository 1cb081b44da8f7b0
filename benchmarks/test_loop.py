"""The whole loop: dataset, DataLoader and training step, an epoch at a time, and the CPU time of an epoch.

A small BERT learns the package that a docstring comes from, in random batches of 32 from a plain `datasets.Dataset` by
the collators of transformers and of quadrat, whose losses must be the same; then with `TokenBudgetBatchSampler`, whose
batches compute as many tokens as a random one does on average; and once more without a model. Each epoch runs in a
process of its own, whose CPU time counts the workers'.
"""

import resource
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.utils.data import DataLoader

import quadrat
from benchmarks.jobs import Job, each, report, reported, size
from benchmarks.processes import apart
from benchmarks.workload import MAX_LENGTH, ROWS, corpus, encode, stored, token_ids, tokenizer

SHORTEST = 8


@cache
def documents(count: int) -> Any:
    """Tokenised docstrings in random order, as a memory-mapped dataset holds them."""
    long_enough = [index for index, ids in enumerate(token_ids()) if len(ids) >= SHORTEST]
    chosen = np.random.default_rng(0).choice(long_enough, size=count, replace=count > len(long_enough))
    model()(input_ids=torch.ones(1, 4, dtype=torch.int64))  # loads what a first step loads, before the processes fork
    return stored([encode(int(index)) for index in chosen], label=[corpus().labels[index] for index in chosen])


def random_batches(_: Any) -> dict[str, Any]:
    return {"batch_size": ROWS, "shuffle": True, "generator": torch.Generator().manual_seed(0)}


def budget(rows: Any) -> dict[str, Any]:
    lengths = quadrat.lengths(rows)
    drawn = np.random.default_rng(0).permutation(lengths)
    most = max(ROWS * int(np.mean([drawn[at : at + ROWS].max() for at in range(0, len(drawn), ROWS)])), MAX_LENGTH)
    return {"batch_sampler": quadrat.TokenBudgetBatchSampler(lengths, most)}


# Whose collator, and which rows go together.
WAYS: dict[str, tuple[Any, Callable[[Any], dict[str, Any]]]] = {
    "transformers": (transformers, random_batches),
    "quadrat": (quadrat, random_batches),
    "budget": (quadrat, budget),
}


def model() -> torch.nn.Module:
    """A BERT of one layer, the same weights each time."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128}
    sizes |= {"max_position_embeddings": MAX_LENGTH, "vocab_size": len(tokenizer())}
    without = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.BertConfig(**sizes, **without, num_labels=len(corpus().label_names))
    return transformers.BertForSequenceClassification(config)


def cpu_ns() -> float:
    """CPU time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used) * 1e9


def epoch(way: str, workers: int, rows: Any, train: bool) -> tuple[dict[str, float], list[float]]:
    """One epoch in this process: the times, the tokens computed for a real one, and the loss of each step."""
    package, batches_of = WAYS[way]
    if package is quadrat:
        quadrat.data.patch_datasets()
    collate = package.DataCollatorWithPadding(tokenizer())
    loader = DataLoader(rows, collate_fn=collate, num_workers=workers, **batches_of(rows))
    network = model() if train else None
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1) if train else None
    torch.manual_seed(1)
    losses, computed, began, used = [], 0, time.perf_counter(), cpu_ns()
    for batch in loader:
        computed += batch["input_ids"].numel()
        if train:
            loss = network(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    times = {"seconds": time.perf_counter() - began, "cpu_ns": cpu_ns() - used}
    return {**times, "computed_per_token": computed / int(quadrat.lengths(rows).sum())}, losses


STEPS = {"a model": True, "no model": False}
CASES = {f"{count} workers, {name}": (count, train) for name, train in STEPS.items() for count in (0, 2, 4)}


def loop(workers: int, train: bool, count: int, spent: dict[str, list[dict[str, float]]]) -> Job:
    """An epoch of each way; `spent`: takes what is measured in it."""
    rows = documents(count)
    run = lambda way: apart(epoch, way, workers, rows, train, start="fork")  # noqa: E731

    def timed(way: str) -> None:
        sample, _ = run(way)
        report(sample.pop("seconds"))
        spent.setdefault(way, []).append(sample)

    def check() -> None:
        losses = [run(way)[1] for way in ("transformers", "quadrat")]
        assert losses[0] == losses[1], "the losses of transformers' collator and of quadrat's differ"

    ways = {way: partial(timed, way) for way in WAYS}
    return Job(ways, {"workers": workers, "model": train, "samples": count}, base="transformers", check=check)


SPENT: dict[str, list[dict[str, float]]] = {}


@pytest.mark.benchmark(timer=reported)
@each(CASES, tuple(WAYS), small=1)
def test_loop(benchmark: Any, in_turn: Any, case: str, way: str) -> None:
    SPENT.clear()
    in_turn(partial(loop, *CASES[case], size(480, 64), SPENT), way, least=3)
    for name in SPENT.get(way, [{}])[0]:
        benchmark.extra_info[name] = float(np.median([sample[name] for sample in SPENT[way]]))
