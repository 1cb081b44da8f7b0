"""The cost of padding: what the usual ways of batching make of rows of given lengths, and what to do.

Batches are a `Ragged` of row numbers, one row per batch; `padded` and `flattened` compute their costs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quadrat.batching.packing import plan_packs
from quadrat.ragged import Ragged
from quadrat.support.arrays import IntArray

# Batches that are sorted by length together, as in `LengthGroupedSampler` of transformers.
MEGABATCH = 50
# Up to this share of padding, nothing is worth the effort.
LITTLE_PADDING = 0.05

# What texts are counted by without a tokenizer.
WORDS = "words, which are fewer than tokens; give your tokenizer with --tokenizer"

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
    # Few rows make four megabatches, very few as many as there are batches.
    megabatch = batch_size * max(1, min(len(order) // (4 * batch_size), MEGABATCH))
    firsts = np.arange(0, len(order), megabatch)
    rows = order[np.lexsort((-lengths[order], np.arange(len(order)) // megabatch))]
    if len(firsts):
        longest = firsts[lengths[rows[firsts]].argmax()]
        rows[[0, longest]] = rows[[longest, 0]]
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


def is_worth_removing(ways: Mapping[str, Cost]) -> bool:
    """True if padding is more than a little of what batches of random rows compute."""
    return ways[DYNAMIC].padding > LITTLE_PADDING


def advise(ways: Mapping[str, Cost], tokenizer: Any = None, stored: Mapping[str, Any] | None = None) -> list[str]:
    """Two or three sentences: what to do, and why. More if stored rows or the tokenizer need attention."""
    fixed, dynamic, budget = (ways[name] for name in (FIXED, DYNAMIC, BUDGET))
    if is_worth_removing(ways):
        messages = [
            f"Have the model compute no padding: {dynamic.padding:.1%} of the tokens of random batches are padding.",
            "quadrat.remove_padding does this. Batches, losses and metrics stay as they are.",
            f"Batches of a token budget leave {budget.padding:.1%} padding, for any model. Rows of similar length then "
            "go together, which can cost accuracy.",
        ]
    else:
        saved = "no token is padding, so there is nothing to save."
        if dynamic.padding:
            saved = f"only {dynamic.padding:.1%} of the tokens are padding, and nothing can save more than that."
        messages = [f"Pad to the longest row of each batch: {saved}", "quadrat.DataCollatorWithPadding does this."]
        if fixed.padding > LITTLE_PADDING:
            messages.append(f"Padding all rows to one length would make {fixed.factor:.1f} times as many tokens.")
    if stored:
        messages.insert(
            0,
            f"Rows are stored padded to {stored['longest']:,} tokens: {stored['padding']:.1%} of what is stored is "
            "padding, which the numbers here are without. Map without padding.",
        )
    if tokenizer is not None and tokenizer.pad_token is None:
        remedy = "set tokenizer.pad_token = tokenizer.eos_token"
        if tokenizer.eos_token is None:
            added = 'tokenizer.add_special_tokens({"pad_token": "[PAD]"})'
            remedy = f"call {added} and model.resize_token_embeddings(len(tokenizer))"
        messages.append(f"The tokenizer has no pad token: before padding, {remedy}.")
    return messages


def code(
    ways: Mapping[str, Cost],
    *,
    batch_size: int,
    max_tokens: int,
    pad_to_multiple_of: int | None = None,
    longest: int = 0,
    stored: bool = False,
) -> dict[str, list[str]]:
    """The lines of Python that do what `advise` says with a `dataset` whose rows have at most `longest` tokens."""
    rounding = "" if pad_to_multiple_of is None else f", pad_to_multiple_of={pad_to_multiple_of}"
    pad = f"collator = quadrat.DataCollatorWithPadding(tokenizer{rounding})"
    first = ["# a dataset that was mapped without padding"] * stored + [pad]
    loader = f"loader = DataLoader(dataset, batch_size={batch_size}, shuffle=True, collate_fn=collator)"
    args = f'args = TrainingArguments("output", per_device_train_batch_size={batch_size})'
    trainer = [args, "trainer = Trainer(model, args, train_dataset=dataset, data_collator=collator)"]
    if not is_worth_removing(ways):
        return {"A DataLoader": [*first, loader], "Trainer": [*first, *trainer]}
    multiple_of = pad_to_multiple_of or 1
    options = f"max_tokens={max_tokens}" + f", multiple_of={multiple_of}" * (multiple_of != 1)
    options += ', overlong="alone"' * (-(-longest // multiple_of) * multiple_of > max_tokens)
    return {
        "A DataLoader": [*first, loader, "quadrat.remove_padding(model)"],
        "Trainer": [*first, *trainer, "quadrat.remove_padding(trainer)"],
        "A DataLoader, for a model that remove_padding leaves alone": [
            *first,
            f"sampler = quadrat.TokenBudgetBatchSampler(quadrat.lengths(dataset), {options})",
            "loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collator)",
            "# before each epoch: sampler.set_epoch(epoch)",
        ],
    }


def with_units(lines: list[str], counted_by: str) -> list[str]:
    """Lines to copy, which say so where their limits are not in tokens."""
    is_limited = any(re.search("max[_-](tokens|length)[= ]", line) for line in lines)
    message = "# the limit counts words, which are fewer than tokens: give your tokenizer with --tokenizer"
    return [*[message] * (counted_by == WORDS and is_limited), *lines]


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
    lengths: dict[str, Any]  # see `summarise`
    histogram: list[Bin]
    ways: dict[str, Cost]
    stored: dict[str, Any]  # see `stored_padding`
    advice: list[str]
    code: dict[str, list[str]]  # lines of Python, by what they are for

    @property
    def packing(self) -> dict[str, float]:
        """The packs, how many any packing needs, and the share of them that holds tokens."""
        packs, kept = self.ways[PACKED].batches, self.lengths["kept"]
        return {"packs": packs, "fewest": max(1, -(-kept // self.max_length)), "fill": kept / (packs * self.max_length)}

    @property
    def how_many(self) -> str:
        """The number of rows, with what they are."""
        rows = self.lengths["rows"]
        return f"{rows:,} {self.rows_are if rows != 1 else self.rows_are.removesuffix('s')}"

    def titled(self) -> dict[str, Cost]:
        """The costs by way of batching, with its limit if it has one."""
        limits = {FIXED: self.max_length, BUDGET: self.max_tokens, PACKED: self.max_length}
        return {f"{name}, {limits[name]:,}" if name in limits else name: cost for name, cost in self.ways.items()}
