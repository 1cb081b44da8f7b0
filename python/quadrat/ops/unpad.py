"""`quadrat.unpad`: the rows of a padded array without their padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quadrat import _core
from quadrat._memory import Framework, address_of, carrier_of, compiling, empty, is_tensor, kind_of, on_gpu
from quadrat._offsets import offsets_like
from quadrat.ingest import explain
from quadrat.ops import _device
from quadrat.ops.mask import offsets_of_lengths
from quadrat.ops.pad import Side, is_left, operators, tracked
from quadrat.ragged import Ragged


def unpad(
    padded: Any, *, lengths: Any = None, mask: Any = None, side: Side = "right", total: int | None = None
) -> Ragged:
    """Take the padding out of a padded array.

    Args:
        padded: `[rows, width, ...]`, a NumPy array or torch tensor, on the CPU or a GPU.
        lengths: `[rows]` integers, the tokens of each row, in the array's library or as a list.
        mask: in place of `lengths`, `[rows, width]`, not 0 for the tokens to keep, such as an attention mask, or
            `labels != -100`; they may lie anywhere in their rows.
        side: with `lengths`, where the padding is, "right" or "left".
        total: with `lengths`, their sum, if it is known. On a GPU, finding it out means to wait for them.

    Returns:
        A `Ragged` of the kept tokens, `[total, ...]`, a copy in the array's library and on its device.

    Raises:
        TypeError: when `padded` is no array, or has a dtype that no kernel moves.
        ValueError: when a row is longer than the width, shapes differ, or an option is unknown. On a GPU longer rows
            are cut, and zeros stand for the rest.
    """
    if not (is_tensor(padded) or isinstance(padded, np.ndarray)):
        raise TypeError(f"padded must be a NumPy array or torch tensor, not {type(padded).__name__}")
    if padded.ndim < 2:
        raise ValueError(f"padded must have rows and tokens, but has {padded.ndim} dimension(s)")
    if (lengths is None) == (mask is None):
        raise ValueError("give either lengths or a mask")
    left = is_left(side)
    if mask is not None:
        return _unpad_by_mask(padded, mask)
    if len(lengths) != len(padded):
        raise ValueError(f"there are {len(padded)} rows and {len(lengths)} lengths")
    return _unpad(padded, lengths, left, total)


def _unpad(padded: Any, lengths: Any, left: bool, total: int | None) -> Ragged:
    if on_gpu(lengths) or (is_tensor(lengths) and compiling()):
        if lengths.dim() != 1 or lengths.dtype.is_floating_point:
            raise ValueError(f"lengths must be integers of one dimension, not {lengths.dtype} of {lengths.dim()}")
        total = int(lengths.sum()) if total is None else total
    else:
        bounds, _ = offsets_of_lengths(lengths)
        lengths, total = np.diff(bounds), int(bounds[-1])
        longest = int(lengths.max(initial=0))
        if longest > padded.shape[1]:
            raise ValueError(
                f"row {int(lengths.argmax())} is longer than the padded length: it has {longest} tokens, where "
                f"{padded.shape[1]} fit"
            )
    offsets, facts = offsets_like(padded, lengths)
    take = operators().unpad if tracked(padded) else unpad_here
    rows = Ragged(take(padded, offsets, total, left), offsets)
    rows._facts = facts
    return rows


def unpad_here(padded: Any, offsets: Any, total: int, left: bool) -> Any:
    """The `total` values, without a gradient; `offsets` in the library of `padded` and on its device."""
    if on_gpu(padded):
        return _device.unpad(padded, offsets, total, left=left)
    if (carrier := carrier_of(padded)) is not None:
        return unpad_here(padded.view(carrier), offsets, total, left).view(padded.dtype)
    framework: Framework = "pt" if is_tensor(padded) else "np"
    source = _device.plain(padded) if framework == "pt" else np.ascontiguousarray(padded)
    bounds = np.ascontiguousarray(offsets, np.int64)
    values, address = empty(framework, (total, *source.shape[2:]), kind_of(source.dtype))
    token = math.prod(source.shape[2:]) * int(source.dtype.itemsize)
    rows, width = source.shape[:2]
    failure = _core.unpad(address_of(source), width, left, address_of(bounds), rows, token, address, total)
    if failure is not None:
        raise ValueError(explain(failure))
    return values


def _unpad_by_mask(padded: Any, mask: Any) -> Ragged:
    if is_tensor(mask) != is_tensor(padded) or not (is_tensor(mask) or isinstance(mask, np.ndarray)):
        raise TypeError(f"the mask must be of the library of padded, not {type(mask).__name__}")
    if tuple(mask.shape) != tuple(padded.shape[:2]):
        raise ValueError(f"the mask must be {tuple(padded.shape[:2])}, not {tuple(mask.shape)}")
    kept = mask != 0
    lengths = kept.sum(1)
    # Where the tokens of each row lie side by side at one end, that is a copy of rows; if not, torch or NumPy picks.
    places = np.arange(padded.shape[1]) if not is_tensor(padded) else _places(padded)
    width = padded.shape[1]
    right = (kept == (places < lengths[:, None])).all()
    left = (kept == (places >= width - lengths[:, None])).all()
    if is_tensor(padded):
        import torch

        size, at_front, at_end = torch.stack([lengths.sum(), right.long(), left.long()]).tolist()
    else:
        size, at_front, at_end = int(lengths.sum()), bool(right), bool(left)
    if at_front or at_end:
        return _unpad(padded, lengths, not at_front, size)
    carrier_of(padded)
    return Ragged.of_lengths(padded[kept], lengths)


def _places(padded: Any) -> Any:
    import torch

    return torch.arange(padded.shape[1], device=padded.device)
