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
from benchmarks.measure import Case, Cases, own
from benchmarks.processes import apart, grown
from benchmarks.workload import Feature, pair, token_rows

KINDS: dict[str, Callable[[np.ndarray], Any]] = {"lists": np.ndarray.tolist, "numpy": np.ndarray.copy}
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
WITH_REFERENCE = SIZES[:2]


def alone(ways: dict[str, Any], features: list[Feature], facts: dict[str, Any], check: Any = None) -> Case:
    calls = {name: partial(collate, features) for name, collate in ways.items()}
    return Case(calls, {**facts, "rows": len(features)}, check=check, seconds=2, in_turn=False)


def batch(kind: str, tokens: int) -> Case:
    features = [{"input_ids": KINDS[kind](row)} for row in token_rows(tokens)]
    reference, ours = pair("DataCollatorWithPadding")
    facts = {"part": "batches", "kind": kind, "tokens": tokens}
    if tokens in WITH_REFERENCE:
        return alone({"transformers": reference, "quadrat": ours}, features, facts)
    return alone({"quadrat": ours}, features, facts, check=lambda: holds_rows(ours(features), features))


def holds_rows(made: Any, features: list[Feature]) -> None:
    """The mask picks the tokens of the rows out of the batch, and as many of each row."""
    mask = made["attention_mask"].numpy().astype(bool)
    assert np.array_equal(mask.sum(axis=1), [len(feature["input_ids"]) for feature in features])
    tokens = np.concatenate([feature["input_ids"] for feature in features])
    assert np.array_equal(made["input_ids"].numpy()[mask], tokens)


def memory_of(side: int, kind: str, tokens: int) -> dict[str, int]:
    small, features = ([{"input_ids": KINDS[kind](row)} for row in token_rows(count)] for count in (1000, tokens))
    collate = pair("DataCollatorWithPadding")[side]
    collate(small)
    peak, made = grown(partial(collate, features))
    return {"peak_bytes": peak, "output_bytes": sum(tensor.nbytes for tensor in made.values())}


def memory(kind: str, tokens: int) -> Case:
    ways = {name: partial(apart, memory_of, at, kind, tokens) for at, name in enumerate(("transformers", "quadrat"))}
    return Case(ways, {"part": "memory", "kind": kind, "tokens": tokens}, stopwatch=own, rounds=3)


def columns(count: int) -> Case:
    numbers = np.random.default_rng(0).integers(0, 30_000, (32, count, 128))
    features = [{f"column_{place}": one.tolist() for place, one in enumerate(row)} for row in numbers]
    ways = {"transformers": transformers.default_data_collator, "quadrat": quadrat.default_data_collator}
    return alone(ways, features, {"part": "columns", "columns": count})


def cases(*, quick: bool) -> Cases:
    sizes = SIZES[:2] if quick else SIZES
    found: Cases = {f"{kind}, {tokens:,} tokens": partial(batch, kind, tokens) for tokens in sizes for kind in KINDS}
    found |= {f"{count} columns": partial(columns, count) for count in (1, 4, 16)}
    return found | {f"memory, {kind}": partial(memory, kind, 10_000 if quick else 1_000_000) for kind in KINDS}
