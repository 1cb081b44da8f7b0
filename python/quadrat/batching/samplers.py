"""The samplers of transformers that use row lengths: the same indices, in compiled code."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from quadrat import _core
from quadrat.batching.lengths import has_stored_lengths, lengths
from quadrat.input.columns import PYTHON_INTS
from quadrat.input.rows import MAIN
from quadrat.installed import imitated, originals
from quadrat.support.arrays import IntArray
from quadrat.support.extras import needs
from quadrat.support.memory import INT64, address_of, interop

with needs("quadrat.batching.samplers", "transformers"):
    import torch
    from transformers.trainer_pt_utils import get_length_grouped_indices as _reference_indices

_NUMPY_INTEGERS = frozenset({np.int8, np.int16, np.int32, np.int64})


class _Own(np.ndarray[Any, np.dtype[np.int64]]):
    """Lengths that were read here. They become a list, which the reference has, when somebody looks at them."""


class _Stored:
    """The lengths of a dataset in Arrow. They are read when the reference sets them, which is after what it checks."""

    def __init__(self, dataset: Any, column: str) -> None:
        self._dataset, self._column = dataset, column
        self.found: _Own | None = None

    def read(self) -> _Own:
        self.found = lengths(self._dataset, self._column).view(_Own)
        return self.found


class _WithLengths:
    """A sampler whose `lengths` stay an array as long as nobody looks at them."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rows={len(_held(self))}, batch_size={vars(self)['batch_size']})"

    @property
    def lengths(self) -> Any:
        """The lengths, as they were given, or a list of those that were read from a dataset."""
        held = vars(self)["lengths"]
        if isinstance(held, _Own):
            held = vars(self)["lengths"] = held.tolist()
        return held

    @lengths.setter
    def lengths(self, value: Any) -> None:
        vars(self)["lengths"] = value.read() if isinstance(value, _Stored) else value


def _held(sampler: Any) -> Any:
    """The lengths of a sampler; those that were read, as an array."""
    held = vars(sampler).get("lengths")
    return held if isinstance(held, _Own) else sampler.lengths


def _or_stored(given: Any, dataset: Any, model_input_name: str | None) -> Any:
    """Lengths for the reference's constructor: those that were given, or the dataset's where Arrow has the same."""
    name = MAIN if model_input_name is None else model_input_name
    if hasattr(given, "column_names"):  # a dataset in the place of its lengths
        return lengths(given, name)
    return _Stored(dataset, name) if given is None and has_stored_lengths(dataset, name) else given


class LengthGroupedSampler(_WithLengths, originals.LengthGroupedSampler):  # type: ignore[misc,name-defined]
    """Row numbers in an order that puts rows of about the same length together: the sampler of Trainer's
    `group_by_length`.

    The indices are those of transformers for the same generator: a random permutation, sorted from long to short within
    megabatches of (at most) 50 batches, the longest row first. Lengths of a `datasets.Dataset` come from Arrow without
    reading the tokens, and the sort is compiled. If the result might differ from transformers (lengths that are not
    integers, a dataset class that overrides reading), the code of transformers is used.

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
        >>> sampler = quadrat.LengthGroupedSampler(2, lengths=[3, 9, 4, 8], generator=torch.Generator().manual_seed(0))
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
        lengths = _or_stored(lengths, dataset, model_input_name)
        super().__init__(batch_size, dataset, lengths, model_input_name, generator)

    def __len__(self) -> int:
        return len(_held(self))

    def __iter__(self) -> Iterator[int]:
        """The row numbers of an epoch; the permutation is drawn at once."""
        if imitated.unknown("LengthGroupedSampler") is not None:
            return super().__iter__()  # type: ignore[no-any-return]
        return iter(get_length_grouped_indices(_held(self), self.batch_size, generator=self.generator))


class DistributedLengthGroupedSampler(
    _WithLengths,
    originals.DistributedLengthGroupedSampler,  # type: ignore[misc,name-defined]
):
    """`LengthGroupedSampler` for several processes, each of which takes every `num_replicas`-th row number.

    Args:
        batch_size: rows in a batch.
        dataset: its items are mappings with token ids. Not read if `lengths` are given.
        num_replicas: the number of processes; by default that of `torch.distributed`.
        rank: the number of this process; by default that of `torch.distributed`.
        seed: with the epoch (`set_epoch`), the seed of the permutation.
        drop_last: drop rows so that all processes have the same number; by default the first rows are repeated.
        lengths: the length of each row, in tokens.
        model_input_name: the column to measure, by default "input_ids".

    Raises:
        ValueError: if neither `dataset` nor `lengths` is given, or the first item is not a mapping with that column.
        RuntimeError: without `num_replicas` or `rank`, when torch.distributed is not available or not initialised.
        TypeError: when a row is null; the message names the row.

    Examples:
        >>> import quadrat
        >>> sampler = quadrat.batching.DistributedLengthGroupedSampler(1, num_replicas=3, rank=0, lengths=[3, 9, 4, 8])
        >>> len(sampler), list(sampler)[0]
        (2, 1)
    """

    def __init__(  # noqa: PLR0917 - as in the reference
        self,
        batch_size: int,
        dataset: Any | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        seed: int = 0,
        drop_last: bool = False,
        lengths: Any | None = None,
        model_input_name: str | None = None,
    ) -> None:
        lengths = _or_stored(lengths, dataset, model_input_name)
        super().__init__(batch_size, dataset, num_replicas, rank, seed, drop_last, lengths, model_input_name)
        if isinstance(lengths, _Stored):
            self.lengths = lengths.found  # the reference made a list of them to count them

    def __iter__(self) -> Iterator[int]:
        """The row numbers of this process in this epoch."""
        if imitated.unknown("DistributedLengthGroupedSampler") is not None:
            return super().__iter__()  # type: ignore[no-any-return]
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        indices = get_length_grouped_indices(_held(self), self.batch_size, generator=generator)
        if self.drop_last:
            indices = indices[: self.total_size]
        else:
            indices += indices[: self.total_size - len(indices)]
        assert len(indices) == self.total_size
        indices = indices[self.rank : self.total_size : self.num_replicas]
        assert len(indices) == self.num_samples
        return iter(indices)


class _NotInstalled:
    """In the place of a class that only later versions of transformers have."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} is a class of transformers, and the installed version lacks it: install a later one"
        )


_Rebalance: Any = getattr(originals, "BatchRebalanceSampler", _NotInstalled)


class _OrReference(type):
    """With it, a sampler of transformers that was made before `patch_transformers` is still known to Trainer."""

    def __instancecheck__(cls, instance: Any) -> bool:
        own = super().__instancecheck__(instance)
        return own or (cls is BatchRebalanceSampler and isinstance(instance, _Rebalance))


class BatchRebalanceSampler(_Rebalance, metaclass=_OrReference):  # type: ignore[misc]
    """Batches of different sizes that cost about the same on each rank: the sampler of Trainer's `batch_rebalance`.

    The batches are those of transformers. The search for the number of rows in each batch is compiled. If a subclass
    overrides the costs or the search, its methods are used.

    Args:
        lengths: the length of each row, in tokens.
        effective_batch_size: the number of rows in an optimizer step, on all ranks.
        dp_size: the number of ranks.
        grad_accum: the number of batches per rank in an optimizer step.
        shuffle: whether to shuffle the rows in each epoch.
        seed: with the epoch (`set_epoch`), the seed of the permutation.
        rank: the number of this rank.
        drop_last: drop the rows that do not fill a whole step.

    Raises:
        AssertionError: when a size is less than 1, or a step has fewer rows than batches.
        NotImplementedError: when the installed transformers has no such sampler.

    Examples:
        >>> import quadrat
        >>> lengths = [9, 1, 1, 2, 8, 1]
        >>> sampler = quadrat.batching.BatchRebalanceSampler(lengths, 6, dp_size=2, grad_accum=1, shuffle=False)
        >>> list(sampler)
        [[0, 4]]
    """

    def _assign(self, indices: list[int], lengths: list[Any]) -> Any:
        known = imitated.unknown("BatchRebalanceSampler") is None and _searches_alike()
        same = known and all(getattr(type(self), name) is getattr(_Rebalance, name) for name in _SEARCH)
        batches = _balanced(self, indices, lengths) if same else None
        return super()._assign(indices, lengths) if batches is None else batches


# What a subclass may have put something else in the place of.
_SEARCH = ("_balance_groups", "_cost", "_group_cost", "_groups_costs_from", "_relieve_and_freeze", "_slot_groups")


@functools.cache
def _searches_alike() -> bool:
    """Whether the installed version searches as the kernel does, tried with and without batches that are frozen."""
    rows = list(range(12))
    tries = [[100, 1, 2, 9, 9, 8, 1, 1, 1, 3, 2, 1], [5] * 12, [*rows], [900, 800, 700, *[1] * 9]]
    samplers = [_Rebalance(one, 12, dp_size, grad_accum) for one in tries for dp_size, grad_accum in ((2, 2), (3, 1))]
    return all(hasattr(_Rebalance, name) for name in _SEARCH) and all(
        sampler._assign(rows, sampler.lengths) == _balanced(sampler, rows, sampler.lengths) for sampler in samplers
    )


def _balanced(sampler: Any, indices: list[int], lengths: list[Any]) -> list[list[list[int]]] | None:
    """The rows of an optimizer step, by rank and batch; None where only the reference's code can tell."""
    # The reference computes costs in the type of the lengths, and small ones overflow.
    known = _as_int64(lengths) if set(map(type, lengths)) <= {int, np.int64} else None
    coefficient = sampler.QUADRATIC_COST_COEF
    if known is None or type(coefficient) is not float or not math.isfinite(coefficient):
        return None
    # From long to short, equal ones in their order.
    order = len(known) - 1 - np.argsort(known[::-1], kind="stable")[::-1]
    descending, size = known[order], sampler.dp_size * sampler.grad_accum
    counts, ranking = np.empty((2, size), np.int64)
    moves = max(30 * size, sampler.effective_batch_size)
    if _core.rebalance_batches(descending, sampler.dp_size, coefficient, moves, counts, ranking) is not None:
        return None
    rows = [indices[place] for place in order.tolist()]
    ends = np.cumsum(counts).tolist()
    batches = [rows[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]
    ranked = [batches[batch] for batch in ranking.tolist()]
    return [ranked[rank :: sampler.dp_size] for rank in range(sampler.dp_size)]


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
