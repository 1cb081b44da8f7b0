"""The sampler of transformers that groups rows by length: the same indices, in compiled code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from quadrat import _core
from quadrat.batching.lengths import has_stored_lengths
from quadrat.batching.lengths import lengths as stored_lengths
from quadrat.input.rows import MAIN
from quadrat.installed import imitated, originals
from quadrat.installed.imitated import Row, code_of
from quadrat.support.arrays import IntArray
from quadrat.support.columns import PYTHON_INTS
from quadrat.support.extras import needs
from quadrat.support.kinds import INT64
from quadrat.support.memory import address_of, interop

with needs("quadrat.batching.samplers", "transformers"):
    import torch
    from transformers.trainer_pt_utils import get_length_grouped_indices as _reference_indices

_GROUPED = code_of("LengthGroupedSampler", "get_length_grouped_indices", home="trainer_pt_utils")
Row("LengthGroupedSampler", _GROUPED, compares=False)
_NUMPY_INTEGERS = frozenset({np.int8, np.int16, np.int32, np.int64})


class _Own(np.ndarray[Any, np.dtype[np.int64]]):
    """Lengths that were read here. They become a list, which the reference has, when somebody looks at them."""


class LengthGroupedSampler(originals.LengthGroupedSampler):  # type: ignore[misc,name-defined]
    """Row numbers in an order that puts rows of about the same length together, for Trainer's `group_by_length`.

    The indices are those of transformers for the same generator: a random permutation, sorted from long to short within
    megabatches of (at most) 50 batches, the longest row first. Lengths of a `datasets.Dataset` come from Arrow. If the
    result might differ (lengths that are not integers, a dataset class that overrides reading), transformers makes it.

    Args:
        batch_size: rows in a batch; with gradient accumulation, in all batches of a step.
        dataset: its items are mappings with token ids. Not read if `lengths` are given.
        lengths: the length of each row, in tokens; or a dataset, whose `quadrat.lengths` are used.
        model_input_name: the column to measure, by default "input_ids".
        generator: a `torch.Generator` for the permutation; by default torch's global one.

    Raises:
        ValueError: if neither `dataset` nor `lengths` is given, or the first item is not a mapping with that column.
        TypeError: when a row is null; the message names the row.

    Examples:
        >>> import quadrat, torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> sampler = quadrat.batching.LengthGroupedSampler(2, lengths=[3, 9, 4, 8], generator=generator)
        >>> list(sampler)
        [1, 0, 3, 2]
    """

    def __init__(
        self,
        batch_size: int,
        dataset: Any | None = None,
        lengths: Any | None = None,
        model_input_name: str | None = None,
        generator: Any = None,
    ) -> None:
        if dataset is None and lengths is None and hasattr(batch_size, "__len__"):
            raise ValueError(
                f"the first argument is the batch size, not a {type(batch_size).__name__}: give "
                "LengthGroupedSampler(batch_size, dataset)"
            )
        name = MAIN if model_input_name is None else model_input_name
        if hasattr(lengths, "column_names"):  # a dataset in the place of its lengths
            lengths = stored_lengths(lengths, name)
        elif lengths is None and has_stored_lengths(dataset, name):
            lengths = stored_lengths(dataset, name).view(_Own)
        super().__init__(batch_size, dataset, lengths, model_input_name, generator)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rows={len(self)}, batch_size={self.batch_size})"

    def __len__(self) -> int:
        return len(self._held())

    @property
    def lengths(self) -> Any:
        """The lengths, as they were given, or a list of those that were read from a dataset."""
        held = self.__dict__["lengths"]
        if isinstance(held, _Own):
            held = self.__dict__["lengths"] = held.tolist()
        return held

    @lengths.setter
    def lengths(self, value: Any) -> None:
        self.__dict__["lengths"] = value

    def __iter__(self) -> Iterator[int]:
        """The row numbers of an epoch; the permutation is drawn at once."""
        if imitated.unknown("LengthGroupedSampler") is not None:
            return super().__iter__()  # type: ignore[no-any-return]
        return iter(get_length_grouped_indices(self._held(), self.batch_size, generator=self.generator))

    def _held(self) -> Any:
        held = self.__dict__.get("lengths")
        return held if isinstance(held, _Own) else self.lengths


def get_length_grouped_indices(
    lengths: Any, batch_size: int, mega_batch_mult: int | None = None, generator: Any = None
) -> list[int]:
    """The function of this name in transformers, compiled: the same list, and the generator is left alike."""
    known = None if imitated.unknown("LengthGroupedSampler") else _as_int64(lengths)
    if known is None or not len(known) or type(batch_size) is not int or not batch_size:
        return _reference(lengths, batch_size, mega_batch_mult, generator)
    if mega_batch_mult is None:
        mega_batch_mult = min(len(known) // (batch_size * 4), 50) or 1
    if type(mega_batch_mult) is not int or not 0 < mega_batch_mult * batch_size < 2**62:
        return _reference(lengths, batch_size, mega_batch_mult, generator)
    drawn = torch.randperm(len(known), generator=generator)
    plain = type(drawn) is torch.Tensor and drawn.is_cpu and drawn.dtype == torch.int64
    indices = drawn.numpy() if plain else np.array(drawn.tolist(), np.int64)
    failure = _core.group_by_length(known, mega_batch_mult * batch_size, indices)
    assert failure is None
    return indices.tolist()  # type: ignore[no-any-return]


def _reference(lengths: Any, *arguments: Any) -> list[int]:
    return _reference_indices(lengths.tolist() if isinstance(lengths, _Own) else lengths, *arguments)  # type: ignore[no-any-return]


def _as_int64(lengths: Any) -> IntArray | None:
    """Lengths as an array; None if they are not a 1-D array or list of integers."""
    datasets: Any = sys.modules.get("datasets")
    is_column = datasets is not None and type(lengths) is getattr(datasets, "Column", None)  # from datasets 4 on
    if is_column and isinstance(lengths.source, datasets.Dataset) and lengths.source.format["type"] != "custom":
        name = lengths.column_name  # alone, or all columns would be decoded
        lengths = lengths.source.select_columns(name).with_format("numpy")[:][name]
    if type(lengths) in (list, tuple):
        return _integers_of(lengths)
    if not isinstance(lengths, np.ndarray) or lengths.ndim != 1 or lengths.dtype.kind != "i":
        return None
    return np.ascontiguousarray(lengths, np.int64)


def _integers_of(values: list[Any] | tuple[Any, ...]) -> IntArray | None:
    """Python's integers, or NumPy's, as an array; None where one is none of these (a bool, say) or is beyond int64."""
    columns = _core.Columns()
    columns.add_values([values], interop())
    found = np.empty(len(values), np.int64)
    kinds = columns.describe(0)[2]
    if kinds == PYTHON_INTS and columns.flatten(0, address_of(found), INT64, len(found)) is None:
        return found
    return np.array(values, np.int64) if set(map(type, values)) <= _NUMPY_INTEGERS else None
