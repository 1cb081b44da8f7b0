"""`pad`: tensors to one shape, as `trl.trainer.utils.pad` does it."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from trl.trainer.utils import pad as _original

from quadrat import _core
from quadrat.input.columns import DEEP, TENSOR
from quadrat.planning.fallback import FallBack, rounded_up
from quadrat.support import memory

if TYPE_CHECKING:
    import torch

Original: Any = _original

_EXACT_IN_FLOAT32 = range(-(2**24), 2**24 + 1)
_BEYOND_FLOAT32 = 2.0**127


def pad(
    tensors: Sequence[torch.Tensor],
    padding_value: int | float = 0,
    padding_side: str = "right",
    pad_to_multiple_of: int | None = None,
) -> torch.Tensor:
    """Pad tensors to one shape and stack them, as TRL's `pad` does.

    CPU tensors of one dtype that differ in their first dimension only are padded by a kernel. TRL pads all others.

    Args:
        tensors: tensors with the same number of dimensions, at least one. Every dimension is padded to the longest.
        padding_value: the value of the padding.
        padding_side: "right" or "left", of the first dimension. The others are padded at their ends.
        pad_to_multiple_of: round the first dimension up to a multiple of this.

    Returns:
        `[tensors, longest, ...]`, of the dtype and on the device of the first tensor.

    Raises:
        ValueError: for another `padding_side`.
        IndexError, TypeError, ValueError, RuntimeError: what TRL raises for tensors that have no common shape.

    Examples:
        >>> import torch
        >>> from quadrat.trl import pad
        >>> pad([torch.tensor([5, 6, 7]), torch.tensor([8])], padding_side="left")
        tensor([[5, 6, 7],
                [0, 0, 8]])
    """
    padded: torch.Tensor | None = _padded(tensors, padding_value, padding_side, pad_to_multiple_of)
    if padded is None:
        padded = Original(tensors, padding_value, padding_side, pad_to_multiple_of)
    return padded


def _padded(tensors: Any, value: Any, side: Any, multiple: Any) -> Any:
    if type(tensors) not in (list, tuple) or not tensors or side not in ("right", "left") or memory.recording():
        return None
    columns = _core.Columns()
    columns.add_values(tensors, memory.interop())
    forms, _, kinds, _, longest, _ = columns.describe(0)
    kind = kinds.bit_length() - 1
    if forms & ~DEEP != TENSOR or kinds.bit_count() != 1 or not _fills(value, kind):
        return None
    try:
        memory.require_plain_tensors()
        width = rounded_up(longest, multiple)
    except (memory.NotOnCpu, FallBack):
        return None
    out, address = memory.empty("pt", (len(tensors), width, *columns.trailing(0)), kind)
    if out.dtype != tensors[0].dtype:  # it is empty, and has a dtype of its own
        return None
    fill = bool(value) if kind == memory.BOOL else value
    failure = columns.pad(0, address, kind, width, side == "left", fill)
    return out if failure is None else None


def _fills(value: Any, kind: int) -> bool:
    """Whether a kernel fills gaps with the number that torch makes of `value`; torch makes it where there are none."""
    if type(value) is float:
        return kind == memory.FLOAT64 or (
            kind == memory.FLOAT32 and (not math.isfinite(value) or abs(value) < _BEYOND_FLOAT32)
        )
    if type(value) is not int or kind == memory.FLOAT16:
        return False
    if kind in (memory.FLOAT32, memory.FLOAT64):
        return value in _EXACT_IN_FLOAT32
    return value in _ints_of(kind)


@functools.cache
def _ints_of(kind: int) -> range:
    of = np.iinfo("int64" if kind == memory.BOOL else memory.KINDS[kind])
    return range(int(of.min), int(of.max) + 1)
