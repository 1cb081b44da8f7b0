"""Which rows go together: lengths, batches of a token budget and packs, beside the references.

Rows have lengths from a lognormal distribution (mean 240 tokens, cut at 2,048; the seed is fixed). Where the reference
takes long, it is timed once, or on a part and scaled: its name says so. `lengths` stands beside what the samplers of
transformers do, and `plan_packs` beside TRL's `_pack_bfd` on a table without tokens.
"""

from functools import lru_cache, partial
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from trl.data_utils import _pack_bfd

import quadrat
from benchmarks.jobs import Job, each, size, timed

LONGEST, BUDGET, BATCH = 2048, 16_384, 32
PART = size(20_000, 500)  # rows that the reference measures
TRL, REFERENCE = "TRL, once", f"transformers, {PART:,} rows, scaled"


@lru_cache(1)
def row_lengths(rows: int) -> np.ndarray:
    drawn = np.random.default_rng(0).lognormal(5.0, 1.0, rows)
    return np.clip(drawn, 1, LONGEST).astype(np.int64)


def lists(lengths: np.ndarray, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.append(0, lengths.cumsum()), pa.int32()), values)


def measured_lengths(rows: int, *, shuffle: bool) -> Job:
    lengths, part = row_lengths(rows), min(rows, PART)
    dataset = datasets.Dataset(pa.table({"input_ids": lists(lengths, pa.array(np.zeros(lengths.sum(), np.int8)))}))
    dataset = dataset.shuffle(seed=0) if shuffle else dataset
    some = dataset.select(range(part))

    def by_rows() -> list[int]:
        return [len(row["input_ids"]) for row in some]

    def check() -> None:
        result = quadrat.lengths(dataset)
        assert result[:part].tolist() == by_rows()
        assert int(result.sum()) == int(lengths.sum())

    ways = {REFERENCE: by_rows, "quadrat": lambda: quadrat.lengths(dataset)}
    facts = {"part": "times", "rows": rows}
    return Job(ways, facts, check=check, slow=(REFERENCE,), factors={REFERENCE: rows / part})


def budget(rows: int, *, listed: bool) -> Job:
    lengths = row_lengths(rows)

    def plan() -> Any:
        sampler = quadrat.TokenBudgetBatchSampler(lengths, BUDGET)
        return list(sampler) if listed else len(sampler)

    def check() -> None:
        batches = list(quadrat.TokenBudgetBatchSampler(lengths, BUDGET))
        assert sorted(row for batch in batches for row in batch) == list(range(rows))
        assert all(len(batch) * lengths[batch].max() <= BUDGET for batch in batches)

    return Job({"quadrat": plan}, {"part": "times", "rows": rows}, check=check)


def packed(rows: int, strategy: str) -> Job:
    lengths = row_lengths(rows)
    ways: dict[str, Any] = {"quadrat": lambda: quadrat.batching.plan_packs(lengths, LONGEST, strategy)}
    facts = {"part": "times", "rows": rows}
    if strategy != "best_fit":
        return Job(ways, facts)
    table = pa.table({"input_ids": lists(lengths, pa.nulls(int(lengths.sum())))})

    def check() -> None:
        packs, joined = ways["quadrat"](), _pack_bfd(table, LONGEST)["seq_lengths"].chunk(0)
        assert np.array_equal(joined.offsets, packs.offsets)
        assert np.array_equal(joined.values, lengths[packs.values])

    return Job({TRL: lambda: _pack_bfd(table, LONGEST), **ways}, facts, check=check, slow=(TRL,))


def plan(rows: int, kind: str) -> dict[str, Any]:
    """How full batches and packs are."""
    lengths = row_lengths(rows)
    fewest = None
    if kind.startswith("pack"):
        packs: Any = partial(quadrat.batching.plan_packs, lengths, LONGEST, kind.removeprefix("pack, "))
        batches, fewest = packs(), -(-int(lengths.sum()) // LONGEST)
        room = len(batches) * LONGEST
    else:
        batches = np.array_split(np.random.default_rng(1).permutation(rows), rows // BATCH)
        if kind.startswith("token budget"):
            batches = list(quadrat.TokenBudgetBatchSampler(lengths, BUDGET))
        room = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    filled = int(lengths.sum()) / room
    counts = {"rows": rows, "batches": len(batches), "fewest": fewest, "mean_length": float(lengths.mean())}
    return {"part": "plans", **counts, "fill": filled, "padding": 1 - filled}


STRATEGIES = ("best_fit", "first_fit", "in_order")
PLANS = [f"random batches of {BATCH}, padded", f"token budget of {BUDGET:,}, padded"]
PLANS += [f"pack, {strategy}" for strategy in STRATEGIES]
MANY, MILLION = size(5_000_000, 2_000), size(1_000_000, 5_000)
LENGTHS = {f"lengths{', shuffled' * yes}": partial(measured_lengths, MANY, shuffle=yes) for yes in (False, True)}
LISTED = {"token budget, plan": False, "token budget, plan and lists of rows": True}
BUDGETS = {name: partial(budget, MILLION, listed=listed) for name, listed in LISTED.items()}
PACKS = {f"pack, {strategy}": partial(packed, MILLION, strategy) for strategy in STRATEGIES}
test_lengths = timed(LENGTHS, (REFERENCE, "quadrat"))
test_budget = timed(BUDGETS, ("quadrat",))
test_packs = timed(PACKS, lambda case: (TRL, "quadrat")["best_fit" not in case :])


@each([f"plan: {kind}" for kind in PLANS], ("quadrat",))
def test_fill(benchmark: Any, case: str, way: str) -> None:
    benchmark.extra_info["facts"] = benchmark.pedantic(plan, (MILLION, case.removeprefix("plan: ")))
