"""`pad`: tensors to one shape, as `trl.trainer.utils.pad` does it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from trl.trainer.utils import pad as _original

from quadrat import _core
from quadrat.installed.imitated import Row, code_of_trl
from quadrat.planning.compared import Looked
from quadrat.planning.diagnosis.values import kind_of
from quadrat.planning.fallback import FallBack, Why, rounded_up
from quadrat.planning.making import call
from quadrat.planning.plan_cache import check_device
from quadrat.support import kinds, memory
from quadrat.support.columns import DEEP, PAD, TENSOR, BatchLayout
from quadrat.support.tensors import recording

Original: Any = _original
_function = Row("trl.pad", code_of_trl(_original)).function("pad")


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
    padding = padding_value, padding_side, pad_to_multiple_of
    look, write = functools.partial(_look, padding_side), functools.partial(_padded, *padding)

    def reference(given: Any) -> Any:
        return Original(given, *padding)

    return call(_function, tensors, look, write, reference, hint=functools.partial(_problem, tensors))  # type: ignore[no-any-return]


def _problem(tensors: Any, why: Why) -> str | None:
    if not isinstance(tensors, (list, tuple)) or not tensors:
        return f"tensors is {kind_of(tensors)}; give a list of tensors, at least one"
    for place, one in enumerate(tensors):
        if not isinstance(one, torch.Tensor):
            return f"tensors[{place}] is {kind_of(one)}, not a tensor; give torch.tensor(row)"
        if not one.ndim or one.ndim != tensors[0].ndim:
            shapes = f"tensors[{place}] has shape {tuple(one.shape)}, tensors[0] {tuple(tensors[0].shape)}"
            return f"{shapes}; give all one number of dimensions, at least 1"
    return None


def _look(padding_side: Any, tensors: Any) -> Looked:
    if type(tensors) not in (list, tuple) or not tensors or recording():
        raise FallBack("tensors are not in a list, or operations on them are recorded")
    columns = _core.Columns()
    columns.add_values(tensors, memory.interop())
    return Looked(("",), columns, "pt", padding_side)


def _padded(
    padding_value: Any, padding_side: Any, pad_to_multiple_of: Any, tensors: Any, looked: Looked
) -> torch.Tensor:
    forms, _, kinds, _, longest, _ = looked.columns.describe(0)
    if forms & ~DEEP != TENSOR or kinds.bit_count() != 1:
        raise FallBack("tensors are not on the CPU, or differ in more than their first dimension")
    if padding_side not in ("right", "left") or type(padding_value) not in (int, float):
        raise FallBack("padding_side or padding_value is unusual", "give 'right' or 'left', and a number")
    check_device("pt")
    kind, width = kinds.bit_length() - 1, rounded_up(longest, pad_to_multiple_of)
    step, fill = ("", 0, PAD, kind), {"": _fill_of(padding_value, repr(padding_value), kind)}
    made = looked.columns.run((step,), fill, memory.interop(), True, BatchLayout(width, left=padding_side == "left"))
    if type(made) is tuple or made[""].dtype != tensors[0].dtype:  # it is empty, and has a dtype of its own
        raise FallBack("tensors have several dtypes, or changed while they were read")
    return made[""]  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=64)
def _fill_of(value: int | float, shown: str, kind: int) -> Any:
    """The number that torch makes of the padding. shown: tells equal keys apart, 0.0 and -0.0. Raises FallBack."""
    try:
        two = torch.full((2,), value, dtype=kinds.torch_dtype(kind), device="cpu")  # torch lets one number overflow
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise FallBack(f"padding_value does not fit {kinds.KINDS[kind]}", "give one that does") from error
    return two[0].item()
