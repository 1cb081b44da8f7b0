"""Rows of flat values, chosen by their numbers or by a mask, as copies."""

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
    if there := bounds is None:
        bounds, index = _in_host_memory(offsets, index)
        bounds = bounds.clip(0, len(values))
    rows = _row_numbers(index, len(bounds) - 1)
    starts, lengths = bounds[rows], bounds[rows + 1] - bounds[rows]
    new_bounds, facts = offsets_of(lengths.clip(0) if there else lengths)
    new_offsets = tensor_or_array(new_bounds, values)
    if there or (is_tensor(values) and (values.requires_grad or has_tangent(values))):
        return _take_in_torch(values, new_offsets, starts - new_bounds[:-1], facts.last), new_offsets, facts
    return copy_rows(values, bounds, rows, facts.last), new_offsets, facts


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


def _take_in_torch(values: Any, offsets: Any, shifts: IntArray, total: int) -> Any:
    """`[total, ...]` as operations of torch: with a gradient, and on a GPU. shifts: of each row, from its new place."""
    import torch

    shift = torch.from_numpy(shifts).to(values.device, non_blocking=True)
    places = torch.repeat_interleave(shift, offsets.diff(), output_size=total)
    return values.index_select(0, places.add_(torch.arange(total, device=values.device)))


def _in_host_memory(offsets: Any, index: Any) -> tuple[IntArray, Any]:
    """Offsets and an index, with one wait for their GPU."""
    import torch

    if not on_gpu(index):
        return offsets.long().cpu().numpy(), index
    is_mask, is_float = index.dtype == torch.bool, index.is_floating_point() or index.is_complex()
    _check_index(index, len(offsets) - 1, is_mask, not is_float)
    both = torch.cat([offsets.long(), index.to(offsets.device).long()]).cpu().numpy()
    bounds, numbers = np.split(both, [len(offsets)])
    return bounds, numbers.astype(bool) if is_mask else numbers


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
