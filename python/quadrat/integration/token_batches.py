"""Batches by token budget for whoever trains: how many there are, what makes them, and a `DataLoader` of them."""

import inspect
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer

from quadrat.batching.budget import AttentionCost, attention_of, joins_rows, require_rows
from quadrat.batching.lengths import lengths as measured
from quadrat.batching.lengths import lengths_of, parts_of
from quadrat.batching.row_tokens import MASK, tokens_in_batches
from quadrat.batching.token_budget import TokenBudgetBatchSampler, usual_sampler
from quadrat.input.rows import MAIN
from quadrat.installed.originals import ORIGINALS
from quadrat.integration.from_transformers import from_transformers
from quadrat.support.arrays import IntArray

# Why batches that are planned are not planned again.
AGAIN = "to have other batches, make the {0} anew (in a notebook, run the cell that makes it, too)"
_OF_BATCHES = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "collate_fn", "drop_last")
_MIXED = ": few long or many short ones. They are mixed less than at random, which can cost accuracy: compare a metric"
_SOME = 64  # rows that are looked at
_MUCH = 0.05  # of what is stored
# Of TRL's trainers: a batch has each completion after its prompt.
_COMPLETIONS = ("chosen_ids", "rejected_ids", "completion_ids", "KL_completion_ids")
_REFERENCE = "reference_ids"
_PROMPT = "prompt_ids"


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
        made = (
            f"batches {budget}{limit}: {steps}. A step has {self.rows / self.steps:,.1f} rows on average instead of "
            f"{self.rows_before:,}{'' if self.alike else _MIXED}."
        )
        if not self.changed:
            why = "all rows have one width" if self.alike else "a batch has one row"
            why = "the collator joins rows without padding" if self.joined else why
            made = f"batches are as before: {why}, so a token budget would save nothing."
        return made + f" Rows are stored padded to {self.stored:,} tokens: map without padding." * (self.stored > 0)


def plan_batches(
    trainer: Any,
    dataset: Any,
    max_tokens: int | Literal["auto"],
    size: int,
    *,
    world: int,
    accumulated: int = 1,
    drop_last: bool,
    seed: int,
    lengths: Any = None,
    column: str = MAIN,
    window: int | None = None,
    attention: Any = None,
) -> tuple[TokenBatches, TokenBudgetBatchSampler | None]:
    """The batches of a Trainer, or of what has its `data_collator` and `model`; None if a budget would save nothing.

    Without a budget, a batch has `size` rows. world, accumulated: the number of processes, and of the batches of a
    step in each. See `batch_by_tokens` for the rest.
    """
    if isinstance(attention, str) and attention == "auto":
        attention = trainer.model
        if attention is None:
            raise ValueError("attention='auto' is that of a Trainer's model: for a loader, give attention=model")
    cost, collator = attention_of(attention), trainer.data_collator
    found = row_lengths(trainer, dataset, column) if lengths is None else lengths_of(lengths, len(dataset))
    require_rows(found, "batch")
    multiple = getattr(collator, "pad_to_multiple_of", None) or 1
    choices = lengths is None and has_choices(trainer, dataset, column)
    several = 1  # rows of a batch that come from one of the dataset: choices, or completions
    if choices:
        several = len(dataset[0][column])
    elif lengths is None and column == MAIN:
        several = len(completions_of(trainer, dataset)) or 1
    multiple *= several
    if cost is not None:  # a row has several sequences
        cost = replace(cost, crossover=cost.crossover * several, window=cost.window * several)
    narrow, wide = (-(-max(int(one), 1) // multiple) * multiple for one in (found.min(), found.max()))
    full = len(found) // (size * world) if drop_last else math.ceil(len(found) / size / world)
    before = now = max(math.ceil(full / accumulated), 1)  # as Trainer counts
    tokens, rows, sampler, joined = size * wide, cast("int | None", size), None, joins_rows(collator)
    saves = narrow < wide and size > 1 and not (joined and cost is None)
    if max_tokens != "auto" or saves:
        options: dict[str, Any] = {"padded": not joined, "multiple_of": multiple, "window": window}
        options |= {"world_size": world, "rank": None, "seed": seed, "attention": cost}
        sampler = _sampler(found, size, accumulated, max_tokens, options)
        tokens, rows, now = sampler.max_tokens, sampler.max_batch_size, math.ceil(len(sampler) // world / accumulated)
    stored = 0 if lengths is not None else stored_width(dataset, found, column, choices=choices)
    numbers = tokens, len(found), before, now, size * world * accumulated, rows
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


class _EachPass(TokenBudgetBatchSampler):
    """Each pass over the rows has the epoch after that of the last one, unless an epoch was set."""

    _is_set = True  # to 0

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self._is_set = True

    def __iter__(self) -> Iterator[list[int]]:
        if not self._is_set:
            self.set_epoch(self.epoch + 1)
        self._is_set = False
        return super().__iter__()


def not_indexed(dataset: Any) -> TypeError:
    """The error for a dataset whose rows cannot be chosen."""
    return TypeError(
        f"{type(dataset).__name__} cannot be indexed by row, so its rows cannot be chosen by length: "
        "use quadrat.BatchedStream"
    )


def loader_by_tokens(
    loader: Any, max_tokens: int | Literal["auto"], *, seed: int | None = None, **options: Any
) -> tuple[Any, TokenBatches]:
    """A loader of the same rows by token budget, or the one given where a budget would save nothing; and its numbers.

    See `batch_by_tokens`.
    """
    _require_shuffled(loader)
    holder = SimpleNamespace(data_collator=loader.collate_fn, model=getattr(loader.collate_fn, "model", None))
    world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    if seed is None:  # processes need the same
        generator = loader.generator or (_name_of(loader.sampler)[0] == "torch" and loader.sampler.generator)
        seed = 0 if world > 1 else (generator or torch.default_generator).initial_seed() % 2**64
    options |= {"world": world, "seed": seed, "drop_last": loader.drop_last}
    numbers, sampler = plan_batches(holder, loader.dataset, max_tokens, loader.batch_size, **options)
    if sampler is None:
        return loader, numbers
    sampler.__class__ = _EachPass
    kept = {
        name: value
        for name in inspect.signature(type(loader)).parameters
        if name not in _OF_BATCHES and (value := getattr(loader, name, None)) not in (None, "")
    }
    kept["collate_fn"] = collator_of_quadrat(loader.collate_fn)
    return type(loader)(loader.dataset, batch_sampler=sampler, **kept), numbers


def _require_shuffled(loader: Any) -> None:
    stateful = getattr(sys.modules.get("torchdata.stateful_dataloader"), "StatefulDataLoader", DataLoader)
    if type(loader) not in (DataLoader, stateful):
        raise TypeError(
            f"a {type(loader).__name__} makes batches in its own way: give batch_by_tokens the DataLoader before "
            "accelerator.prepare, or another library, wraps it"
        )
    if isinstance(loader.dataset, IterableDataset):
        raise not_indexed(loader.dataset)
    sampler = loader.sampler
    if isinstance(loader.batch_sampler, TokenBudgetBatchSampler):
        raise ValueError(f"the batches of this loader are planned already: {AGAIN.format('loader')}")
    usual = {(library, name) for library in ("torch", "torchdata") for name in ("RandomSampler", "BatchSampler")}
    if not {_name_of(sampler), _name_of(loader.batch_sampler)} <= usual:
        raise ValueError(
            "the loader does not shuffle (shuffle=True), and the order of its rows would change: "
            "quadrat.batching.by_length keeps the order of results"
        )
    if sampler.replacement or sampler.num_samples != len(loader.dataset):
        raise ValueError("the sampler of the loader draws rows more than once, or some of them: use shuffle=True")


def _name_of(value: Any) -> tuple[str, str]:
    """The library and the name of an object's class: torchdata has samplers of its own."""
    return type(value).__module__.partition(".")[0], type(value).__name__


def row_lengths(trainer: Any, dataset: Any, column: str = MAIN) -> IntArray:
    """The tokens that each row takes in a batch of a Trainer's collator, with all its choices.

    Raises what `lengths` raises, and ValueError for a collator that pads all rows to one length.
    """
    collator = trainer.data_collator
    choices = has_choices(trainer, dataset, column)
    if getattr(collator, "padding", None) == "max_length":
        raise ValueError("the collator pads each row to one length (padding='max_length'): give it padding=True")
    if column == MAIN and (completions := completions_of(trainer, dataset)):
        prompts = measured(dataset, _PROMPT) if _PROMPT in dataset.column_names else 0
        longest = np.max([measured(dataset, name) for name in completions], axis=0) + prompts
        cut: IntArray = np.minimum(longest, getattr(collator, "max_length", None) or longest)
        return len(completions) * cut
    columns = getattr(dataset, "column_names", None) or []
    if column not in columns and any(name.endswith("_ids") for name in columns):
        raise ValueError(
            f"no column {column!r}: there are {columns}, and {type(collator).__name__} joins them in its own way; "
            "give batch_by_tokens lengths=, the tokens that each row takes in a batch"
        )
    return measured(dataset, column, choices=choices)


def completions_of(trainer: Any, dataset: Any) -> tuple[str, ...]:
    """The columns of which a batch has one row each, after its prompt, for collators of preferences; else none."""
    names, collator = getattr(dataset, "column_names", None) or (), trainer.data_collator
    if MAIN in names or "Preference" not in type(collator).__name__:
        return ()
    references = (_REFERENCE,) if getattr(collator, "include_reference", False) else ()
    return tuple(name for name in (*_COMPLETIONS, *references) if name in names)


def stored_width(dataset: Any, sizes: IntArray, column: str = MAIN, *, choices: bool = False) -> int:
    """The tokens of the longest row, if rows that take so many are stored padded; else 0. Some rows are read."""
    some = range(0, len(sizes), -(-len(sizes) // _SOME))
    try:
        part = dataset.select(some) if hasattr(dataset, "select") else [dataset[row] for row in some]
        tokens = tokens_in_batches(parts_of(part, (column, MASK)), choices=choices).sum()
    except (TypeError, ValueError):
        return 0
    return int(sizes.max()) if tokens < (1 - _MUCH) * sizes[some].sum() else 0


def has_choices(trainer: Any, dataset: Any, column: str = MAIN) -> bool:
    """True if rows are those of multiple choice, by the first one. Raises ValueError if the collator takes others."""
    collator, model = (type(part).__name__ for part in (trainer.data_collator, trainer.model))
    if "MultipleChoice" not in collator + model:
        return False
    row: Any = dataset[0] if len(dataset) else ()
    if column not in row:  # what measures the rows says so
        return True
    nested = len(row[column]) > 0 and hasattr(row[column][0], "__len__")
    if not nested and "MultipleChoice" in collator:
        raise ValueError(
            f"{collator} takes rows with several choices, and row 0 of column '{column}' is one row of tokens: give "
            "another data_collator, or rows of lists"
        )
    return nested


def require_usual(trainer: Any, methods: Iterable[str], does: str) -> None:
    """Raises ValueError for a Trainer that has one of these methods of its own, with what it does in its own way."""
    cls = type(trainer)
    for name in methods:
        own = vars(trainer).get(name)
        if getattr(cls, name) is not getattr(Trainer, name) or own is not None:
            raise ValueError(f"{cls.__name__} {does} in its own way: it has a {name} of its own")
