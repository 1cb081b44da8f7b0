"""Cost per token of batches of ten thousand to ten million tokens, and of one to sixteen columns; memory of a million.

Batches: padding of ragged rows of about 450 tokens; the rows hold `input_ids` only, the collator makes the attention
mask. Columns: stacking of 32 rows of 128 numbers a column, by `default_data_collator`. Each collator is measured alone:
next to the reference, quadrat would find colder caches, in the small batches only. Memory: the growth of a process of
its own during a call, with the tensors; a small batch comes before it, as buffers are kept from call to call.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import transformers

import quadrat
from benchmarks.jobs import BOTH, Job, each, size, timed_alone
from benchmarks.processes import apart, grown
from benchmarks.workload import Feature, pair, token_rows, tokenizer

KINDS: dict[str, Callable[[np.ndarray], Any]] = {"lists": np.ndarray.tolist, "numpy": np.ndarray.copy}
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
WITH_REFERENCE = SIZES[:2]


def job(ways: dict[str, Any], features: list[Feature], facts: dict[str, Any], check: Any = None) -> Job:
    calls = {name: partial(collate, features) for name, collate in ways.items()}
    return Job(calls, {**facts, "rows": len(features)}, check=check)


def batch(kind: str, tokens: int) -> Job:
    features = [{"input_ids": KINDS[kind](row)} for row in token_rows(tokens)]
    reference, ours = pair("DataCollatorWithPadding")
    facts = {"part": "batches", "kind": kind, "tokens": tokens}
    if tokens in WITH_REFERENCE:
        return job({"transformers": reference, "quadrat": ours}, features, facts)
    return job({"quadrat": ours}, features, facts, check=lambda: holds_rows(ours(features), features))


def holds_rows(output: Any, features: list[Feature]) -> None:
    """The mask picks the tokens of the rows out of the batch, and as many of each row."""
    mask = output["attention_mask"].numpy().astype(bool)
    assert np.array_equal(mask.sum(axis=1), [len(feature["input_ids"]) for feature in features])
    tokens = np.concatenate([feature["input_ids"] for feature in features])
    assert np.array_equal(output["input_ids"].numpy()[mask], tokens)


def memory_of(side: int, kind: str, tokens: Any, *sizes: list[np.ndarray]) -> dict[str, int]:
    """What the second batch takes."""
    before, features = ([{"input_ids": KINDS[kind](row)} for row in rows] for rows in sizes)
    collate = (transformers, quadrat)[side].DataCollatorWithPadding(tokens)
    collate(before)
    peak, output = grown(partial(collate, features))
    return {"peak_bytes": peak, "output_bytes": sum(tensor.nbytes for tensor in output.values())}


def columns(count: int) -> Job:
    numbers = np.random.default_rng(0).integers(0, 30_000, (32, count, 128))
    features = [{f"column_{place}": column.tolist() for place, column in enumerate(row)} for row in numbers]
    ways = {"transformers": transformers.default_data_collator, "quadrat": quadrat.default_data_collator}
    return job(ways, features, {"part": "columns", "columns": count})


BATCHES = {f"{kind}, {tokens:,} tokens": partial(batch, kind, tokens) for tokens in SIZES for kind in KINDS}
COLUMNS = {f"{count} columns": partial(columns, count) for count in (1, 4, 16)}


def ways(case: str) -> tuple[str, ...]:
    large = [f"{tokens:,} tokens" for tokens in SIZES if tokens not in WITH_REFERENCE]
    return BOTH[1:] if case.endswith(tuple(large)) else BOTH


test_batches = timed_alone(BATCHES, ways, small=len(WITH_REFERENCE) * len(KINDS))
test_columns = timed_alone(COLUMNS)


@each([f"memory, {kind}" for kind in KINDS], small=1)
def test_memory(benchmark: Any, case: str, way: str) -> None:
    kind, tokens = case.removeprefix("memory, "), size(1_000_000, 10_000)
    benchmark.extra_info["facts"] = {"part": "memory", "kind": kind, "tokens": tokens}
    sizes = token_rows(1000), token_rows(tokens)
    benchmark.extra_info |= benchmark.pedantic(apart, (memory_of, BOTH.index(way), kind, tokenizer(), *sizes))
