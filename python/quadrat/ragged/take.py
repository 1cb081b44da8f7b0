"""Rows of flat values, chosen by their numbers or by a mask, as copies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quadrat import _core
from quadrat.ragged.offsets import Facts, offsets_of, tensor_or_array
from quadrat.support.arrays import IntArray, as_numpy, dense, room_like
from quadrat.support.columns import explain
from quadrat.support.kinds import KINDS
from quadrat.support.memory import address_of
from quadrat.support.tensors import has_tangent, is_tensor, on_gpu


def take(values: Any, offsets: Any, bounds: IntArray | None, index: Any) -> tuple[Any, Any, Facts]:
    """Values, offsets and facts of `Ragged.__getitem__`; `bounds` are checked offsets on the CPU, None on a GPU."""
    if bounds is None or (is_tensor(values) and (values.requires_grad or has_tangent(values))):
        return _take_in_torch(values, offsets, index)
    rows = _row_numbers(index, len(bounds) - 1)
    new_bounds, facts = offsets_of(bounds[rows + 1] - bounds[rows])
    return copy_rows(values, bounds, rows, facts.last), tensor_or_array(new_bounds, values), facts


def copy_rows(values: Any, bounds: IntArray, rows: IntArray, total: int, name: str = "values") -> Any:
    """`[total, ...]`, by the kernel that flattens batches."""
    source = dense(values, name)
    out, address = room_like(source, (total, *source.shape[1:]))
    # Nothing is converted: whatever the numbers are, they are moved as integers of their size.
    kind, inner = KINDS.index(f"int{8 * int(source.dtype.itemsize)}"), math.prod(source.shape[1:])
    place = address_of(source), len(source) * inner, kind
    if (failure := _core.copy_rows(*place, bounds * inner, rows, address, total * inner)) is not None:
        raise ValueError(explain(failure))
    return out


def _take_in_torch(values: Any, offsets: Any, index: Any) -> tuple[Any, Any, Facts]:
    """`take` as operations of torch: with a gradient, and on a GPU with one wait for the sizes."""
    import torch

    count, place = len(offsets) - 1, values.device
    bounds = offsets.long().clamp(0, len(values))
    if on_gpu(index):
        rows, state = _row_numbers_on_gpu(index.to(place), count)
    else:
        rows = torch.from_numpy(_row_numbers(index, count)).to(place, non_blocking=True)
        state = rows.new_zeros(0)
    if not len(rows):
        return values.index_select(0, rows), rows.new_zeros(1), Facts(0, 0, (0, 0))
    lengths = torch.nn.functional.pad(bounds.diff().clamp_(min=0), (0, 1))[rows]  # that of no row is 0
    most, longest = lengths.max(0)  # a tensor as an index would be waited for
    total, row, tokens, *found = torch.cat([torch.stack([lengths.sum(), longest, most]), state]).tolist()
    if found:
        kept, outside, number = found
        if outside:
            raise IndexError(f"row {number} of {count}")
        rows, lengths = rows[:kept], lengths[:kept]
    new_offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    shift = torch.repeat_interleave(bounds[rows] - new_offsets[:-1], lengths, output_size=total)
    places = shift.add_(torch.arange(total, device=place))
    return values.index_select(0, places), new_offsets, Facts(0, total, (row, tokens) if tokens else (0, 0))


def _row_numbers_on_gpu(index: Any, count: int) -> tuple[Any, Any]:
    """As `_row_numbers`, without waiting for the GPU.

    Returns row numbers, and how many of them count, whether one is out of range, and that one.
    """
    import torch

    _check_index(index, count, index.dtype == torch.bool, not (index.is_floating_point() or index.is_complex()))
    if index.dtype == torch.bool:
        kept, first = index.sum(), torch.argsort(index.logical_not().byte(), stable=True)
        rows = torch.where(torch.arange(count, device=index.device) < kept, first, count)
        return rows, torch.nn.functional.pad(kept[None], (0, 2))
    numbers = index.long()
    if not len(numbers):
        return numbers, numbers
    outside = (numbers < -count) | (numbers >= count)
    is_outside, first = outside.byte().max(0)
    rows = torch.where(outside, count, numbers.remainder(max(count, 1)))
    return rows, torch.stack([torch.full_like(first, len(rows)), is_outside.long(), numbers.take(first)])


def _row_numbers(index: Any, count: int) -> IntArray:
    """The numbers, from 0 on, of the rows that `index` chooses of `count`. Raises IndexError and TypeError."""
    if not is_tensor(index) and not len(index):
        index = np.asarray(index, getattr(index, "dtype", np.int64))
    numbers = as_numpy(index, "the numbers of rows")
    _check_index(numbers, count, numbers.dtype == np.bool_, numbers.dtype.kind in "iu")
    if numbers.dtype == np.bool_:
        return np.flatnonzero(numbers)
    outside = (numbers < -count) | (numbers >= count)
    if outside.any():
        raise IndexError(f"row {numbers[outside.argmax()]} of {count}")
    numbers = numbers.astype(np.int64)
    return np.where(numbers < 0, numbers + count, numbers)


def _check_index(index: Any, count: int, is_mask: bool, is_integers: bool) -> None:
    if index.ndim != 1:
        raise IndexError(f"rows are chosen by a 1-D index, not one of {index.ndim} dimensions")
    if is_mask and len(index) != count:
        raise IndexError(f"the mask has {len(index)} booleans for {count} rows: it must have one for each row")
    if not (is_mask or is_integers):
        raise TypeError(f"rows are chosen by integers, or by one boolean for each, not by {index.dtype}")
