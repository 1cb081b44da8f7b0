"""The cost of padding: the batches that the usual ways of batching make of rows of given lengths, and their tokens.

Everything here is a function of lengths. Batches are a `Ragged` of row numbers, one row per batch; `padded` and
`flattened` compute their costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from quadrat import _core
from quadrat.batching.packing import plan_packs
from quadrat.batching.shapes import plan_shapes
from quadrat.ragged import Ragged
from quadrat.support.arrays import IntArray

# Batches that are sorted by length together, as in `LengthGroupedSampler` of transformers.
MEGABATCH = 50
# Up to this share of padding, no other way of batching is worth the effort.
LITTLE_PADDING = 0.05

FIXED = "fixed length"
DYNAMIC = "dynamic"
GROUPED = "grouped by length"
BUDGET = "token budget"
FLATTENED = "padding-free"
PACKED = "packed"


@dataclass(frozen=True)
class Cost:
    """The cost of one pass over all rows in one way of batching."""

    batches: int
    largest_batch: int  # in tokens, padding included
    tokens: int  # of the rows
    computed: int  # of the batches, padding included
    shapes: int  # different ones of batches
    scores: float  # pairs of positions that full attention compares; in a flattened batch, those within rows

    @property
    def padding(self) -> float:
        """The share of computed tokens that is padding; 0 where nothing is computed."""
        return 1 - self.tokens / self.computed if self.computed else 0.0

    @property
    def factor(self) -> float:
        """Computed tokens for each token of the rows."""
        return self.computed / self.tokens if self.tokens else 1.0


@dataclass(frozen=True)
class Bin:
    """Rows of `first` to `last` tokens; without `last`, of `first` and more."""

    first: int
    last: int | None
    rows: int

    def __str__(self) -> str:
        """As a label: `32-63`, `1,024+`."""
        if self.last is None:
            return f"{self.first:,}+"
        return f"{self.first:,}" if self.first == self.last else f"{self.first:,}\N{EN DASH}{self.last:,}"


def summarise(lengths: IntArray, max_length: int) -> dict[str, Any]:
    """Lengths in a few numbers. `p95` is a length that 95 % of the rows do not exceed; `kept` are the tokens left."""
    return {
        "rows": len(lengths),
        "tokens": int(lengths.sum()),
        "mean": float(lengths.mean()),
        "median": float(np.median(lengths)),
        "p95": int(np.percentile(lengths, 95, method="inverted_cdf")),
        "longest": int(lengths.max()),
        "truncated": int((lengths > max_length).sum()),
        "kept": int(np.minimum(lengths, max_length).sum()),
    }


def stored_padding(lengths: IntArray, stored: IntArray) -> dict[str, Any]:
    """How long rows of these lengths are stored, and the share of that which is padding; empty if that is little."""
    share = 1 - lengths.sum() / max(1, stored.sum())
    return {"longest": int(stored.max()), "padding": float(share)} if share > LITTLE_PADDING else {}


def histogram(lengths: IntArray, *, at_most: int = 20) -> list[Bin]:
    """At most `at_most` bins of one width, a power of two; one more for few rows far longer than the others."""
    shortest, longest = int(lengths.min()), int(lengths.max())
    usual = int(np.percentile(lengths, 95, method="inverted_cdf"))
    last = usual if longest > 2 * usual else longest
    width = 1
    while last // width - shortest // width + 1 > at_most:
        width *= 2
    begin, bins = shortest // width, last // width - shortest // width + 1
    counts = np.bincount(np.minimum(lengths // width - begin, bins), minlength=bins + 1).tolist()
    ends = [(begin + number + 1) * width - 1 for number in range(bins)]
    found = [Bin(end - width + 1, end, rows) for end, rows in zip(ends, counts, strict=False)]
    return found + [Bin(ends[-1] + 1, None, counts[-1])] * bool(counts[-1])


def times(factor: float) -> str:
    """A factor with as many decimals as are useful."""
    return f"{factor:,.{2 if factor < 10 else 1 if factor < 100 else 0}f}"


def shuffled(order: IntArray, batch_size: int) -> Ragged:
    """Batches of `batch_size` rows in the given order, as `RandomSampler` gives them."""
    return Ragged(order, np.append(np.arange(0, len(order), batch_size), len(order)))


def length_grouped(lengths: IntArray, order: IntArray, batch_size: int) -> Ragged:
    """The batches of transformers' `get_length_grouped_indices`, where `order` is the permutation that it draws."""
    lengths, rows = np.ascontiguousarray(lengths), order.copy()
    # Few rows make four megabatches, very few as many as there are batches.
    megabatch = batch_size * max(1, min(len(rows) // (4 * batch_size), MEGABATCH))
    failure = _core.group_by_length(lengths, megabatch, rows)
    assert failure is None
    return shuffled(rows, batch_size)


def token_budget(lengths: IntArray, max_tokens: int, *, multiple_of: int = 1, seed: int = 0) -> Ragged:
    """The batches of `TokenBudgetBatchSampler`; a row above the budget is a batch by itself."""
    from quadrat.batching.token_budget import TokenBudgetBatchSampler  # which imports torch

    sampler = TokenBudgetBatchSampler(lengths, max_tokens, multiple_of=multiple_of, seed=seed, overlong="alone")
    return sampler.batches()


def padded(lengths: IntArray, batches: Ragged, *, multiple_of: int = 1, to: int | None = None) -> Cost:
    """The cost of batches that are padded to their longest row, or `to` a length, rounded up to a multiple."""
    rows = batches.lengths
    longest = np.full_like(rows, to or 0)
    if to is None:
        longest = np.maximum.reduceat(lengths[batches.values], batches.offsets[:-1])
    longest = -(-longest // multiple_of) * multiple_of
    shapes = len(np.unique(np.stack([rows, longest]), axis=1).T)
    return _cost(lengths, rows * longest, shapes, (rows * longest.astype(np.float64) ** 2).sum())


def flattened(lengths: IntArray, batches: Ragged, *, multiple_of: int = 1) -> Cost:
    """The cost of batches that are joined to one row each, rounded up to a multiple."""
    totals = np.add.reduceat(lengths[batches.values], batches.offsets[:-1])
    totals = -(-totals // multiple_of) * multiple_of
    return _cost(lengths, totals, len(np.unique(totals)), (lengths.astype(np.float64) ** 2).sum())


def _cost(lengths: IntArray, sizes: IntArray, shapes: int, scores: float) -> Cost:
    """Of batches of these sizes, in tokens."""
    return Cost(len(sizes), int(sizes.max()), int(lengths.sum()), int(sizes.sum()), shapes, float(scores))


def few_shapes(lengths: IntArray, max_tokens: int) -> dict[int, int]:
    """The tokens of an epoch whose batches have 1, 2, 4 or 8 shapes; empty if a row is above the budget."""
    if not 0 < -(-int(lengths.max()) // 8) * 8 <= max_tokens:
        return {}
    computed = plan_shapes(lengths, max_tokens, shapes=8).computed
    return {number: tokens for number, tokens in computed.items() if number is not None}


def every_way(
    lengths: IntArray, *, batch_size: int, max_length: int, max_tokens: int, multiple_of: int = 1, seed: int = 0
) -> dict[str, Cost]:
    """The cost of one pass in each way of batching. `lengths`, `[rows]`, are those of truncated rows, at least one.

    `max_tokens` is at least `multiple_of`. All but `BUDGET` and `PACKED` begin with one permutation, drawn from `seed`.
    """
    order = np.random.default_rng(seed).permutation(len(lengths)).astype(np.int64)
    batches = shuffled(order, batch_size)
    budget = token_budget(lengths, max_tokens, multiple_of=multiple_of, seed=seed)
    return {
        FIXED: padded(lengths, batches, multiple_of=multiple_of, to=max_length),
        DYNAMIC: padded(lengths, batches, multiple_of=multiple_of),
        GROUPED: padded(lengths, length_grouped(lengths, order, batch_size), multiple_of=multiple_of),
        BUDGET: padded(lengths, budget, multiple_of=multiple_of),
        FLATTENED: flattened(lengths, batches, multiple_of=multiple_of),
        PACKED: flattened(lengths, plan_packs(lengths, max_length), multiple_of=multiple_of),
    }


@dataclass(frozen=True)
class Report:
    """Everything that `python -m quadrat waste` shows."""

    data: str
    rows_are: str  # "texts" or "rows"
    counted_by: str
    batch_size: int
    max_length: int
    max_tokens: int
    budget_is: str
    pad_to_multiple_of: int | None
    summary: dict[str, Any]
    bins: list[Bin]
    costs: dict[str, Cost]  # by way of batching
    stored: dict[str, Any]  # see `stored_padding`
    few_shapes: dict[int, int]
    advice: list[str]
    code: dict[str, list[str]]  # lines of Python, by what they are for

    @property
    def packing(self) -> dict[str, float]:
        """The packs, how many any packing needs, and the share of them that holds tokens."""
        packs, kept = self.costs[PACKED].batches, self.summary["kept"]
        return {"packs": packs, "fewest": max(1, -(-kept // self.max_length)), "fill": kept / (packs * self.max_length)}

    @property
    def how_many(self) -> str:
        """The number of rows, with what they are."""
        rows = self.summary["rows"]
        return f"{rows:,} {self.rows_are if rows != 1 else self.rows_are.removesuffix('s')}"

    def titled(self) -> dict[str, Cost]:
        """The costs by way of batching, with its limit if it has one."""
        limits = {FIXED: self.max_length, BUDGET: self.max_tokens, PACKED: self.max_length}
        return {f"{name}, {limits[name]:,}" if name in limits else name: cost for name, cost in self.costs.items()}
