"""The tokens that the rows of a dataset take in the batches of a collator, for a model."""

from typing import Any, NamedTuple

import numpy as np

from quadrat.batching.budget import require_rows
from quadrat.batching.lengths import lengths as measured
from quadrat.batching.lengths import lengths_of, parts_of
from quadrat.batching.row_tokens import MASK, tokens_in_batches
from quadrat.input.rows import MAIN
from quadrat.support.arrays import IntArray

_SOME = 64  # rows that are looked at
_MUCH = 0.05  # of what is stored
# Of TRL's trainers: a batch has each completion after its prompt.
_COMPLETIONS = ("chosen_ids", "rejected_ids", "completion_ids", "KL_completion_ids")
_REFERENCE = "reference_ids"
_PROMPT = "prompt_ids"


class RowsInBatches(NamedTuple):
    """The tokens that rows take in a batch."""

    tokens: IntArray  # `[rows]`, of all sequences of a row
    sequences: int = 1  # rows of a batch that come from one of the dataset: choices, or completions
    stored: int = 0  # the tokens to which rows are stored padded; 0 if they are not


def rows_in_batches(collator: Any, model: Any, dataset: Any, column: str = MAIN, lengths: Any = None) -> RowsInBatches:
    """The rows of a dataset, measured unless their lengths come with them.

    Raises what `lengths` raises, and ValueError for no rows and for a collator that pads all rows to one length.
    """
    if lengths is not None:
        rows = RowsInBatches(lengths_of(lengths, len(dataset)))
        require_rows(rows.tokens, "batch")
        return rows
    choices = _has_choices(collator, model, dataset, column)
    if getattr(collator, "padding", None) == "max_length":
        raise ValueError("the collator pads each row to one length (padding='max_length'): give it padding=True")
    completions = _completions_of(collator, dataset) if column == MAIN else ()
    if completions:
        prompts = measured(dataset, _PROMPT) if _PROMPT in dataset.column_names else 0
        longest = np.max([measured(dataset, name) for name in completions], axis=0) + prompts
        tokens: IntArray = len(completions) * np.minimum(longest, getattr(collator, "max_length", None) or longest)
    else:
        columns = getattr(dataset, "column_names", None) or []
        if column not in columns and any(name.endswith("_ids") for name in columns):
            raise ValueError(
                f"no column {column!r}: there are {columns}, and {type(collator).__name__} joins them in its own way; "
                "give batch_by_tokens lengths=, the tokens that each row takes in a batch"
            )
        tokens = measured(dataset, column, choices=choices)
    require_rows(tokens, "batch")
    sequences = len(dataset[0][column]) if choices else len(completions) or 1
    return RowsInBatches(tokens, sequences, _stored_width(dataset, tokens, column, choices=choices))


def _completions_of(collator: Any, dataset: Any) -> tuple[str, ...]:
    """The columns of which a batch has one row each, after its prompt, for collators of preferences; else none."""
    names = getattr(dataset, "column_names", None) or ()
    if MAIN in names or "Preference" not in type(collator).__name__:
        return ()
    references = (_REFERENCE,) if getattr(collator, "include_reference", False) else ()
    return tuple(name for name in (*_COMPLETIONS, *references) if name in names)


def _stored_width(dataset: Any, tokens: IntArray, column: str, *, choices: bool) -> int:
    """The tokens of the longest row, if rows that take so many are stored padded; else 0. Some rows are read."""
    some = range(0, len(tokens), -(-len(tokens) // _SOME))
    try:
        part = dataset.select(some) if hasattr(dataset, "select") else [dataset[row] for row in some]
        real = tokens_in_batches(parts_of(part, (column, MASK)), choices=choices).sum()
    except (TypeError, ValueError):
        return 0
    return int(tokens.max()) if real < (1 - _MUCH) * tokens[some].sum() else 0


def _has_choices(collator: Any, model: Any, dataset: Any, column: str) -> bool:
    """True if rows are those of multiple choice, by the first one. Raises ValueError if the collator takes others."""
    name = type(collator).__name__
    if "MultipleChoice" not in name + type(model).__name__:
        return False
    row: Any = dataset[0] if len(dataset) else ()
    if column not in row:  # what measures the rows says so
        return True
    nested = len(row[column]) > 0 and hasattr(row[column][0], "__len__")
    if not nested and "MultipleChoice" in name:
        raise ValueError(
            f"{name} takes rows with several choices, and row 0 of column '{column}' is one row of tokens: give "
            "another data_collator, or rows of lists"
        )
    return nested
