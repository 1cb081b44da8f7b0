"""The tokens of rows in the batches of a Trainer."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from transformers import Trainer

from quadrat.batching.lengths import lengths, parts_of
from quadrat.batching.row_tokens import MASK, tokens_in_batches
from quadrat.input.rows import MAIN
from quadrat.support.arrays import IntArray

_SOME = 64  # rows that are looked at
_MUCH = 0.05  # of what is stored
# Of TRL's trainers: a batch has each completion after its prompt.
_COMPLETIONS = ("chosen_ids", "rejected_ids", "completion_ids", "KL_completion_ids")
_REFERENCE = "reference_ids"
_PROMPT = "prompt_ids"


def row_lengths(trainer: Any, dataset: Any, column: str = MAIN) -> IntArray:
    """The tokens that each row takes in a batch of a Trainer's collator, with all its choices.

    Raises what `lengths` raises, and ValueError for a collator that pads all rows to one length.
    """
    collator = trainer.data_collator
    choices = has_choices(trainer, dataset, column)
    if getattr(collator, "padding", None) == "max_length":
        raise ValueError("the collator pads each row to one length (padding='max_length'): give it padding=True")
    if column == MAIN and (completions := completions_of(trainer, dataset)):
        prompts = lengths(dataset, _PROMPT) if _PROMPT in dataset.column_names else 0
        longest = np.max([lengths(dataset, name) for name in completions], axis=0) + prompts
        cut: IntArray = np.minimum(longest, getattr(collator, "max_length", None) or longest)
        return len(completions) * cut
    columns = getattr(dataset, "column_names", None) or []
    if column not in columns and any(name.endswith("_ids") for name in columns):
        raise ValueError(
            f"no column {column!r}: there are {columns}, and {type(collator).__name__} joins them in its own way; "
            "give batch_by_tokens lengths=, the tokens that each row takes in a batch"
        )
    return lengths(dataset, column, choices=choices)


def completions_of(trainer: Any, dataset: Any) -> tuple[str, ...]:
    """The columns of which a batch has one row each, after its prompt, for collators of preferences; else none."""
    names, collator = getattr(dataset, "column_names", None) or (), trainer.data_collator
    if MAIN in names or "Preference" not in type(collator).__name__:
        return ()
    more = (_REFERENCE,) if getattr(collator, "include_reference", False) else ()
    return tuple(name for name in (*_COMPLETIONS, *more) if name in names)


def rows_of_one(trainer: Any, dataset: Any, column: str) -> int:
    """How many rows of a batch come from one of the dataset: choices, or completions."""
    if has_choices(trainer, dataset, column):
        return len(dataset[0][column])
    return len(completions_of(trainer, dataset)) or 1 if column == MAIN else 1


def stored_width(dataset: Any, found: IntArray, column: str = MAIN, *, choices: bool = False) -> int:
    """The tokens of the longest row, if rows that take so many are stored padded; else 0. Some rows are read."""
    some = range(0, len(found), -(-len(found) // _SOME))
    try:
        part = dataset.select(some) if hasattr(dataset, "select") else [dataset[row] for row in some]
        tokens = tokens_in_batches(parts_of(part, (column, MASK)), choices=choices).sum()
    except (TypeError, ValueError):
        return 0
    return int(found.max()) if tokens < (1 - _MUCH) * found[some].sum() else 0


def has_choices(trainer: Any, dataset: Any, column: str = MAIN) -> bool:
    """True if rows are those of multiple choice, by the first one. Raises ValueError if the collator takes others."""
    collator, model = (type(one).__name__ for one in (trainer.data_collator, trainer.model))
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
