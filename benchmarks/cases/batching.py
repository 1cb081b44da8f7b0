"""Which rows go together: lengths, batches of a token budget and packs, beside the references.

Rows have lengths from a lognormal distribution (mean 240 tokens, cut at 2,048; the seed is fixed). Where the reference
takes long, it is timed once, or on a part and scaled: its name says so. `lengths` stands beside what the samplers of
transformers do, `plan_packs` beside TRL's `_pack_bfd` on a table without tokens, and `pack_dataset` beside TRL's, each
into a new file. "map alone" writes the same rows unchanged.
"""

from functools import cache, partial
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from trl.data_utils import _pack_bfd

import quadrat
from benchmarks.measure import ONCE, Case, Cases, Way

LONGEST, BUDGET, BATCH = 2048, 16_384, 32
PART = 20_000  # rows that the reference measures


@cache
def row_lengths(rows: int) -> np.ndarray:
    drawn = np.random.default_rng(0).lognormal(5.0, 1.0, 5_000_000)
    return np.clip(drawn, 1, LONGEST).astype(np.int64)[:rows]


def lists(lengths: np.ndarray, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.append(0, lengths.cumsum()), pa.int32()), values)


def job(lengths: np.ndarray, ways: dict[str, Any], check: Any = None, **options: Any) -> Case:
    return Case(ways, {"part": "times", "rows": len(lengths)}, check=check, **{"rounds": 6, **options})


def measured_lengths(rows: int, *, shuffle: bool) -> Case:
    lengths, part = row_lengths(rows), min(rows, PART)
    given = datasets.Dataset(pa.table({"input_ids": lists(lengths, pa.array(np.zeros(lengths.sum(), np.int8)))}))
    given = given.shuffle(seed=0) if shuffle else given
    some = given.select(range(part))

    def by_rows() -> list[int]:
        return [len(row["input_ids"]) for row in some]

    def check() -> None:
        found = quadrat.lengths(given)
        assert found[:part].tolist() == by_rows()
        assert int(found.sum()) == int(lengths.sum())

    reference = Way(by_rows, every=ONCE, scale=rows / part)
    ways = {f"transformers, {part:,} rows, scaled": reference, "quadrat": lambda: quadrat.lengths(given)}
    return job(lengths, ways, check)


def budget(rows: int, *, listed: bool) -> Case:
    lengths = row_lengths(rows)

    def plan() -> Any:
        sampler = quadrat.TokenBudgetBatchSampler(lengths, BUDGET)
        return list(sampler) if listed else len(sampler)

    def check() -> None:
        batches = list(quadrat.TokenBudgetBatchSampler(lengths, BUDGET))
        assert sorted(row for batch in batches for row in batch) == list(range(rows))
        assert all(len(batch) * lengths[batch].max() <= BUDGET for batch in batches)

    return job(lengths, {"quadrat": plan}, check)


def packed(rows: int, strategy: str) -> Case:
    lengths = row_lengths(rows)
    ways: dict[str, Any] = {"quadrat": lambda: quadrat.batching.plan_packs(lengths, LONGEST, strategy)}
    if strategy != "best_fit":
        return job(lengths, ways)
    table = pa.table({"input_ids": lists(lengths, pa.nulls(int(lengths.sum())))})

    def check() -> None:
        packs, joined = ways["quadrat"](), _pack_bfd(table, LONGEST)["seq_lengths"].chunk(0)
        assert np.array_equal(joined.offsets, packs.offsets)
        assert np.array_equal(joined.values, lengths[packs.values])

    return job(lengths, {"TRL, once": Way(lambda: _pack_bfd(table, LONGEST), every=ONCE), **ways}, check)


def plan(rows: int, kind: str) -> Case:
    """How full batches and packs are."""
    lengths = row_lengths(rows)
    fewest = None
    if kind.startswith("pack"):
        batches: Any = quadrat.batching.plan_packs(lengths, LONGEST, kind.removeprefix("pack, "))  # type: ignore[arg-type]
        room, fewest = len(batches) * LONGEST, -(-int(lengths.sum()) // LONGEST)
    else:
        batches = np.array_split(np.random.default_rng(1).permutation(rows), rows // BATCH)
        if kind.startswith("token budget"):
            batches = list(quadrat.TokenBudgetBatchSampler(lengths, BUDGET))
        room = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    filled = int(lengths.sum()) / room
    counts = {"rows": rows, "batches": len(batches), "fewest": fewest, "mean_length": float(lengths.mean())}
    return Case(facts={"part": "plans", **counts, "fill": filled, "padding": 1 - filled})


def cases(*, quick: bool) -> Cases:
    to_measure, to_plan = (20_000, 5_000) if quick else (5_000_000, 1_000_000)
    strategies = ("best_fit", "first_fit", "in_order")
    found: Cases = {
        "lengths": partial(measured_lengths, to_measure, shuffle=False),
        "lengths, shuffled": partial(measured_lengths, to_measure, shuffle=True),
        "token budget, plan": partial(budget, to_plan, listed=False),
        "token budget, plan and lists of rows": partial(budget, to_plan, listed=True),
    }
    found |= {f"pack, {strategy}": partial(packed, to_plan, strategy) for strategy in strategies}
    plans = [f"random batches of {BATCH}, padded", f"token budget of {BUDGET:,}, padded"]
    plans += [f"pack, {strategy}" for strategy in strategies]
    return found | {f"plan: {kind}": partial(plan, to_plan, kind) for kind in plans}
