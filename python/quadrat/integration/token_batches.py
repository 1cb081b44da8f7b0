"""Batches by token budget for whoever trains: how many there are, and what makes them."""

import math
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast

from quadrat.batching.budget import AttentionCost, attention_of, joins_rows
from quadrat.batching.token_budget import TokenBudgetBatchSampler, usual_sampler
from quadrat.installed.originals import ORIGINALS
from quadrat.integration.from_transformers import from_transformers
from quadrat.integration.row_sizes import rows_in_batches
from quadrat.support.arrays import IntArray

# Why batches that are planned are not planned again.
AGAIN = "to have other batches, make the {0} anew (in a notebook, run the cell that makes it, too)"
_MIXED = ": few long or many short ones. They are mixed less than at random, which can cost accuracy: compare a metric"


class TokenBatches(NamedTuple):
    """The result of `batch_by_tokens`; as a string, some sentences."""

    max_tokens: int  # of a batch, padding included
    rows: int  # of the dataset
    steps_before: int  # optimizer steps of an epoch, with batches of a constant number of rows
    steps: int  # those of an epoch now
    rows_before: int  # of a step, on all processes
    max_rows: int | None  # of a batch; None: as many as `max_tokens` allow
    alike: bool  # whether all rows have one width
    changed: bool  # False: batches are as before, because a budget would save nothing
    joined: bool  # whether the collator joins rows, without padding
    attention: AttentionCost | None = None  # by which batches cost the same time; None: they have the same tokens
    stored: int = 0  # the tokens to which rows are stored padded; 0 if they are not

    def __str__(self) -> str:
        limit = "" if self.max_rows is None else f" and {self.max_rows:,} rows"
        budget = f"of at most {self.max_tokens:,} tokens"
        if self.attention is not None:
            budget = f"that cost at most as much as {self.max_tokens:,} tokens in rows of median length"
        steps = f"{self.steps:,} {'step' if self.steps == 1 else 'steps'} an epoch"
        steps += ", as before" if self.steps == self.steps_before else f" instead of {self.steps_before:,}"
        text = (
            f"batches {budget}{limit}: {steps}. A step has {self.rows / self.steps:,.1f} rows on average instead of "
            f"{self.rows_before:,}{'' if self.alike else _MIXED}."
        )
        if not self.changed:
            why = "all rows have one width" if self.alike else "a batch has one row"
            why = "the collator joins rows without padding" if self.joined else why
            text = f"batches are as before: {why}, so a token budget would save nothing."
        return text + f" Rows are stored padded to {self.stored:,} tokens: map without padding." * (self.stored > 0)


def plan_batches(
    collator: Any,
    model: Any,
    dataset: Any,
    max_tokens: int | Literal["auto"],
    size: int,
    *,
    world: int,
    accumulated: int = 1,
    drop_last: bool,
    seed: int,
    window: int | None = None,
    attention: Any = None,
    **measured: Any,
) -> tuple[TokenBatches, TokenBudgetBatchSampler | None]:
    """The batches of a collator's rows, for a model if there is one; no sampler if a budget would save nothing.

    Without a budget, a batch has `size` rows. world, accumulated: the number of processes, and of the batches of a
    step in each. See `batch_by_tokens` for the rest.
    """
    if isinstance(attention, str) and attention == "auto":
        attention = model
        if attention is None:
            raise ValueError("attention='auto' is that of a Trainer's model: for a loader, give attention=model")
    cost = attention_of(attention)
    lengths, sequences, stored = rows_in_batches(collator, model, dataset, **measured)
    multiple = sequences * (getattr(collator, "pad_to_multiple_of", None) or 1)
    if cost is not None:
        cost = replace(cost, crossover=cost.crossover * sequences, window=cost.window * sequences)
    narrow, wide = (-(-max(int(length), 1) // multiple) * multiple for length in (lengths.min(), lengths.max()))
    full = len(lengths) // (size * world) if drop_last else math.ceil(len(lengths) / size / world)
    before = now = max(math.ceil(full / accumulated), 1)  # as Trainer counts
    tokens, rows, sampler, joined = size * wide, cast("int | None", size), None, joins_rows(collator)
    saves = narrow < wide and size > 1 and not (joined and cost is None)
    if max_tokens != "auto" or saves:
        options: dict[str, Any] = {"padded": not joined, "multiple_of": multiple, "window": window}
        options |= {"world_size": world, "rank": None, "seed": seed, "attention": cost}
        sampler = _sampler(lengths, size, accumulated, max_tokens, options)
        tokens, rows, now = sampler.max_tokens, sampler.max_batch_size, math.ceil(len(sampler) // world / accumulated)
    numbers = tokens, len(lengths), before, now, size * world * accumulated, rows
    return TokenBatches(*numbers, narrow == wide, sampler is not None, joined, cost, stored), sampler


def collator_of_quadrat(collator: Any) -> Any:
    """A collator of quadrat in the place of one of transformers; others as they are."""
    return from_transformers(collator) if type(collator) in ORIGINALS.values() else collator


def _sampler(
    lengths: IntArray, size: int, accumulated: int, max_tokens: Any, options: dict[str, Any]
) -> TokenBudgetBatchSampler:
    if max_tokens == "auto":
        return usual_sampler(lengths, size, batches_of_a_step=accumulated, **options)
    longest, multiple = int(lengths.max()), options["multiple_of"]
    if isinstance(max_tokens, int) and 0 < max_tokens < (least := -(-longest // multiple) * multiple):
        row = f"row {int(lengths.argmax())} has {longest} tokens"
        rounded = f" in multiples of {multiple}" if longest <= max_tokens else ""
        raise ValueError(f"{row}, more than max_tokens={max_tokens} allow{rounded}; give {least} or more")
    return TokenBudgetBatchSampler(lengths, max_tokens, **options)


def not_indexed(dataset: Any) -> TypeError:
    """The error for a dataset whose rows cannot be chosen."""
    return TypeError(
        f"{type(dataset).__name__} cannot be indexed by row, so its rows cannot be chosen by length: "
        "use quadrat.BatchedStream"
    )
