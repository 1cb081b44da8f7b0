"""How long training steps take by tokens and by the cost of attention: their spread, and how long ranks wait.

A causal model of four layers takes steps of rows whose lengths are drawn from a lognormal distribution and cut at 32
and 4,096 tokens. Times of steps are those of the processor. Steps of one width are beside what `AttentionCost.of` says
of the model. Two ranks (gloo) wait for each other after each step.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
import transformers
from torch import distributed

import quadrat
from benchmarks.jobs import each, size
from benchmarks.processes import together
from quadrat.batching import AttentionCost

BUDGET, TOKENS, WIDTHS = size(8192, 2048), size(4096, 2048), (128, 512, 2048)
SIZES = {"hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 4, "intermediate_size": 384}
WAYS = {"tokens": None, "cost": "auto"}


@cache
def model() -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=1000, **SIZES)).train()


def step(lengths: Any) -> float:
    """The seconds of a training step of rows of these lengths, padded to the longest."""
    ids = quadrat.pad([[5] * length for length in lengths], return_tensors="pt")
    began = process_time()
    model()(input_ids=ids, attention_mask=(ids != 0).long(), labels=ids).loss.backward()
    return process_time() - began


def row_lengths(rows: int) -> Any:
    return np.random.default_rng(0).lognormal(5.5, 1.0, rows).clip(32, 4096).astype(int)


def batches(way: str, lengths: Any, **options: Any) -> list[list[int]]:
    attention = AttentionCost.of(model()) if WAYS[way] else None
    return list(quadrat.TokenBudgetBatchSampler(lengths, BUDGET, attention=attention, **options))


def spread(way: str, rows: int) -> dict[str, Any]:
    lengths = row_lengths(rows)
    plan = batches(way, lengths)
    assert sorted(row for batch in plan for row in batch) == list(range(rows))
    step([128])
    taken = [step(lengths[batch]) for batch in plan]
    median, late = np.quantile(taken, (0.5, 0.9))
    return {"rows": rows, "steps": len(plan), "median": median, "late": late / median}


def predicted(rounds: int) -> dict[str, Any]:
    # One token is padding, so that there is a mask.
    widths = {width: [width - 1, *[width] * (TOKENS // width - 1)] for width in WIDTHS}
    step(widths[WIDTHS[0]])
    seconds = {width: min(step(lengths) for _ in range(rounds)) for width, lengths in widths.items()}
    costs = AttentionCost.of(model()).of_tokens(WIDTHS)
    measured = {f"{width} tokens": seconds[width] / seconds[WIDTHS[0]] for width in WIDTHS}
    return {**measured, "predicted": (costs / costs[0]).tolist()}


def waiting(rank: int, way: str, rows: int, file: str) -> tuple[float, float]:
    """The seconds of an epoch on this rank, and those that it waits."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{file}", rank=rank, world_size=2)
    lengths, waited = row_lengths(rows), 0.0
    plan = batches(way, lengths, world_size=2, rank=rank)
    step([128])
    distributed.barrier()
    began = perf_counter()
    for batch in plan:
        step(lengths[batch])
        waits = perf_counter()
        distributed.barrier()
        waited += perf_counter() - waits
    return perf_counter() - began, waited


def ranks(way: str, rows: int) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        spent = together(waiting, 2, way, rows, str(Path(folder, "store")))
    total, waited = np.sum(spent, axis=0)
    return {"rows": rows, "seconds": total / 2, "waited": waited / total}


@each(["predicted"], ("cost",))
def test_predicted(benchmark: Any, case: str, way: str) -> None:
    benchmark.extra_info |= benchmark.pedantic(predicted, (size(5, 1),))


@each(["spread"], WAYS)
def test_spread(benchmark: Any, case: str, way: str) -> None:
    benchmark.extra_info |= benchmark.pedantic(spread, (way, size(300, 8)))


@each(["two ranks"], WAYS)
def test_ranks(benchmark: Any, case: str, way: str) -> None:
    benchmark.extra_info |= benchmark.pedantic(ranks, (way, size(300, 8)))
