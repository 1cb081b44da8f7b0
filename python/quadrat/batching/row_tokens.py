"""The tokens that rows take in a batch: with all their choices, or without those that a mask leaves out."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from quadrat.ragged.source import RowSource
from quadrat.support.arrays import IntArray

MASK = "attention_mask"


def tokens_in_batches(parts: Iterable[Sequence[Any]], *, choices: bool) -> IntArray:
    """The tokens of each row; with choices, of the longest choice times their number. Raises TypeError, ValueError."""
    # A part: rows, and their masks if these are to be counted, as lists or Arrow arrays of lists, or None.
    tokens, counts, first = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for columns in parts:
        rows, *masks = columns
        first, examples = first + len(rows), rows
        try:
            if choices:
                rows, *masks = (None if column is None else _choices_in(column) for column in columns)
                counts.append(_sizes_of(examples))
            tokens.append(_tokens_of(rows, *masks))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error} (counted from row {first - len(examples)})") from None
    of_rows: IntArray = np.concatenate(tokens)
    if not choices:
        return of_rows
    each = np.concatenate(counts)
    longest, some = np.zeros_like(each), each > 0
    longest[some] = np.maximum.reduceat(of_rows, (each.cumsum() - each)[some])
    return np.asarray(each * longest)


def _choices_in(examples: Any) -> Any:
    return examples.flatten() if hasattr(examples, "value_lengths") else [*chain.from_iterable(examples)]


def _sizes_of(examples: Any) -> IntArray:
    if not hasattr(examples, "value_lengths"):
        return np.array([*map(len, examples)], np.int64)
    if examples.null_count:
        raise TypeError(f"row {examples.is_null().to_numpy(False).argmax()} is null")
    return np.asarray(examples.value_lengths(), np.int64)


def _tokens_of(rows: Any, mask: Any = None) -> IntArray:
    """The tokens of each row, or those that its mask keeps."""
    source = RowSource.of(rows)
    if source.trailing:
        raise TypeError(f"rows are made of rows of the shape {source.trailing}")
    if mask is None:
        return np.asarray(source.lengths)
    values, offsets, _ = RowSource.of(mask).joined(None, "np")
    if (wrong := np.flatnonzero(np.diff(offsets) != source.lengths)).size:
        row = int(wrong[0])
        raise ValueError(f"row {row} has {source.lengths[row]} tokens, and {np.diff(offsets)[row]} in {MASK!r}")
    return np.asarray(np.diff(np.append(0, (values != 0).cumsum())[offsets]))
