"""`pad`: tensors to one shape, as `trl.trainer.utils.pad` does it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from trl.trainer.utils import pad as _original

from quadrat import _core
from quadrat.installed import imitated
from quadrat.installed.imitated import Row, code_of_trl
from quadrat.planning.compared import compared, is_due, of_reference
from quadrat.planning.diagnosis.values import kind_of
from quadrat.planning.fallback import FallBack, raise_saying, require_known, rounded_up
from quadrat.support import kinds, memory
from quadrat.support.columns import DEEP, TENSOR
from quadrat.support.tensors import NotOnCpu, recording, require_plain_tensors

Original: Any = _original
Row("trl.pad", code_of_trl(_original))
_named: Any = type("pad", (), {"_imitates": "trl.pad"})()


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
    padded = None if of_reference() else _padded(tensors, padding_value, padding_side, pad_to_multiple_of)
    if padded is None:
        try:
            padded = Original(tensors, padding_value, padding_side, pad_to_multiple_of)
        except Exception as error:
            raise_saying(error, _problem(tensors))
    return padded  # type: ignore[no-any-return]


def _problem(tensors: Any) -> str | None:
    if not isinstance(tensors, (list, tuple)) or not tensors:
        return f"tensors is {kind_of(tensors)}; give a list of tensors, at least one"
    for place, one in enumerate(tensors):
        if not isinstance(one, torch.Tensor):
            return f"tensors[{place}] is {kind_of(one)}, not a tensor; give torch.tensor(row)"
        if not one.ndim or one.ndim != tensors[0].ndim:
            shapes = f"tensors[{place}] has shape {tuple(one.shape)}, tensors[0] {tuple(tensors[0].shape)}"
            return f"{shapes}; give all one number of dimensions, at least 1"
    return None


def _padded(tensors: Any, value: Any, side: Any, multiple: Any) -> Any:
    if type(tensors) not in (list, tuple) or not tensors or side not in ("right", "left") or recording():
        return None
    columns = _core.Columns()
    columns.add_values(tensors, memory.interop())
    forms, _, kinds, shortest, longest, _ = columns.describe(0)
    kind = kinds.bit_length() - 1
    if forms & ~DEEP != TENSOR or kinds.bit_count() != 1 or type(value) not in (int, float):
        return None
    try:
        require_known(_named._imitates, "pt")
        require_plain_tensors()
        width, fill = rounded_up(longest, multiple), _fill_of(value, repr(value), kind)
    except (NotOnCpu, FallBack):
        return None
    out, address = memory.empty("pt", (len(tensors), width, *columns.trailing(0)), kind)
    if fill is None or out.dtype != tensors[0].dtype:  # it is empty, and has a dtype of its own
        return None
    looks = forms, kinds, shortest == longest, side
    failed = columns.pad(0, address, kind, width, side == "left", fill) is not None
    if failed or not imitated.compares(_named._imitates) or not is_due(_named, columns, ("",), *looks):
        return None if failed else out
    reference = functools.partial(Original, padding_value=value, padding_side=side, pad_to_multiple_of=multiple)
    return compared(_named, tensors, lambda _: out, reference, explains=False)


@functools.lru_cache(maxsize=64)
def _fill_of(value: int | float, shown: str, kind: int) -> Any:
    """The number that torch makes of the padding; None where it raises. shown: tells equal keys apart, 0.0 and -0.0."""
    try:
        two = torch.full((2,), value, dtype=kinds.torch_dtype(kind), device="cpu")  # torch lets one number overflow
    except (RuntimeError, TypeError, ValueError, OverflowError):
        return None
    return two[0].item()
