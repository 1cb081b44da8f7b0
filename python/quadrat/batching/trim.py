"""Padding that rows bring along, because they were stored padded: where it is, and batches without it."""

import warnings
from collections.abc import Iterable, MutableMapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from quadrat.input.rows import MAIN
from quadrat.ragged.source import RowSource
from quadrat.support.around import Around
from quadrat.support.arrays import IntArray
from quadrat.support.kinds import KINDS
from quadrat.support.tensors import is_tensor

MASK, LABELS = "attention_mask", "labels"
_IGNORED = -100  # a label that no loss counts
_COUNTED = "labels of masked tokens are not -100: they count in the loss, and trim would drop them; make them -100"


def in_batches(parts: Iterable[Sequence[Any]], *, choices: bool) -> IntArray:
    """The tokens that each row takes in a batch: with all choices, without padding. Raises TypeError, ValueError."""
    # A part: rows, and their masks and labels if padding is to be left out, as lists or Arrow arrays of lists, or None.
    found, counts, first = [np.empty((3, 0), np.int64)], [np.empty(0, np.int64)], 0
    for columns in parts:
        rows, *others = columns
        first, examples = first + len(rows), rows
        try:
            if choices:
                rows, *others = (None if column is None else _choices_in(column) for column in columns[:2])
                counts.append(_sizes_of(examples))
            found.append(_padding_of(rows, *others))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error} (counted from row {first - len(examples)})") from None
    sizes, before, after = np.concatenate(found, axis=1)
    tokens: IntArray = sizes - (before if before.sum() > after.sum() else after)
    if not choices:
        return tokens
    each = np.concatenate(counts)
    longest, some = np.zeros_like(each), each > 0
    longest[some] = np.maximum.reduceat(tokens, (each.cumsum() - each)[some])
    return np.asarray(each * longest)


def _choices_in(examples: Any) -> Any:
    return examples.flatten() if hasattr(examples, "value_lengths") else [*chain.from_iterable(examples)]


def _sizes_of(examples: Any) -> IntArray:
    if not hasattr(examples, "value_lengths"):
        return np.array([*map(len, examples)], np.int64)
    if examples.null_count:
        raise TypeError(f"row {examples.is_null().to_numpy(False).argmax()} is null")
    return np.asarray(examples.value_lengths(), np.int64)


def _padding_of(rows: Any, mask: Any = None, labels: Any = None) -> IntArray:
    """The tokens of each row, and how many masked ones are at its start and at its end, `[3, rows]`; 0 if all are."""
    source = RowSource.of(rows)
    if source.trailing:
        raise TypeError(f"rows are made of rows of the shape {source.trailing}")
    if mask is None:
        return np.stack([source.lengths, *np.zeros((2, len(source)), np.int64)])
    made = _ends(RowSource.of(mask), 0)
    if (wrong := np.flatnonzero(made[0] != source.lengths)).size:
        row = int(wrong[0])
        raise ValueError(f"row {row} has {source.lengths[row]} tokens, and {made[0, row]} in {MASK!r}")
    made[1:, made[1] == made[0]] = 0
    try:
        counted = None if labels is None else RowSource.of(labels)
    except TypeError:  # one for each row
        counted = None
    if counted is None or "int" not in KINDS[counted.kind] or (counted.lengths != made[0]).any():
        return made
    if (wrong := np.flatnonzero((_ends(counted, _IGNORED)[1:] < made[1:]).any(0))).size:
        raise ValueError(f"row {wrong[0]}: {_COUNTED}")
    return made


def _ends(source: RowSource, nothing: int) -> IntArray:
    """The items of each row, and how many of them are `nothing` before the first and after the last that is not."""
    values, offsets, _ = source.joined(None, "np")
    found = np.concatenate(([-1], np.flatnonzero(values != nothing), [len(values)]))
    starts, ends = offsets[:-1], offsets[1:]
    before = np.minimum(found[np.searchsorted(found, starts)], ends) - starts
    after = ends - 1 - np.maximum(found[np.searchsorted(found, ends) - 1], starts - 1)
    return np.stack([source.lengths, before, after])


def span_of(mask: Any, multiple_of: int | None = None) -> slice:
    """The columns from the first to the last in which a row is not masked, as many as a multiple; all if none is."""
    width = mask.shape[-1]
    used = np.flatnonzero(np.asarray(mask).reshape(-1, width).any(0))
    if not len(used):
        return slice(0, width)
    multiple = multiple_of or 1
    size = min(width, -(-int(used[-1] + 1 - used[0]) // multiple) * multiple)
    first = min(int(used[0]), width - size)
    return slice(first, first + size)


def trimmed(batch: Any, multiple_of: int | None = None, apart: Iterable[str] = ()) -> Any:
    """The batch without the columns at its sides that are masked in every row."""
    # apart: outputs whose columns are not those of the tokens, as those of a decoder are not.
    mask = batch.get(MASK) if isinstance(batch, MutableMapping) else None
    shape = shape_of(mask)
    if len(shape) < 2 or shape != (shape_of(batch.get(MAIN)) or shape[:2]):
        return batch
    kept, axis, cut = span_of(mask, multiple_of), len(shape) - 1, {}
    decoder = {name for name in batch if name.startswith("decoder_")}
    apart = {*apart, *decoder, *([LABELS] if decoder else [])}
    for name, value in batch.items() if kept != slice(0, shape[-1]) else ():
        sizes, labels = shape_of(value), name in {LABELS, "label"}
        if sizes[: axis + 1] != shape or name in apart or (labels and "float" in str(value.dtype)):  # of classes
            continue
        if labels and any((value[..., part] != _IGNORED).any() for part in (slice(kept.start), slice(kept.stop, None))):
            warnings.warn(f"{_COUNTED}; until then, such batches are not trimmed", stacklevel=2)
            return batch
        inner = [kept if size == shape[-1] else slice(None) for size in sizes[axis + 1 :]]
        part = value[(*[slice(None)] * axis, kept, *inner)]
        cut[name] = part.clone() if is_tensor(part) else part.copy()
    batch.update(cut)
    return batch


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array or a tensor in host memory; empty for all else."""
    known = value.is_cpu if is_tensor(value) else isinstance(value, np.ndarray)
    return tuple(value.shape) if known else ()


class Trimmed(Around):
    """A collator whose batches are those of another one, trimmed."""

    trim = True

    def __init__(self, collator: Any, apart: Sequence[str] = ()) -> None:
        if getattr(collator, "deferred", False):
            raise TypeError("a collator with deferred=True trims its batches itself: give it trim=True")
        self.collator, self._apart = collator, apart

    def __call__(self, features: Any) -> Any:
        """The batch of `features`."""
        return trimmed(self.collator(features), getattr(self.collator, "pad_to_multiple_of", None), self._apart)
