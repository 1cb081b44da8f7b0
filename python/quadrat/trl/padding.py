"""`pad`: tensors to one shape, as `trl.trainer.utils.pad` does it."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from trl.trainer.utils import pad as _original

from quadrat.installed.imitated import Imitation, code_of_trl
from quadrat.planning.compared import reference_is_running
from quadrat.planning.diagnosis.values import kind_of
from quadrat.planning.dispatch import Imitator, call
from quadrat.planning.fallback import FallBack, Reason, reraise_with_hint, rounded_up
from quadrat.planning.plan_cache import Plan, PlanKey, Spec, planned
from quadrat.support import kinds
from quadrat.support.columns import DEEP, PAD, TENSOR, BatchLayout, column_shapes
from quadrat.support.tensors import recording

Original: Any = _original


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

    usual = type(padding_value) in (int, float) and type(pad_to_multiple_of) in (int, type(None))
    if not usual or padding_side not in ("right", "left") or type(tensors) not in (list, tuple) or not tensors:
        return _reference(tensors, padding_value, padding_side, pad_to_multiple_of)  # type: ignore[no-any-return]
    if reference_is_running() or recording():
        return _reference(tensors, padding_value, padding_side, pad_to_multiple_of)  # type: ignore[no-any-return]
    method = _remembered(padding_value, repr(padding_value), padding_side, pad_to_multiple_of)
    run = method._recipes("pt")
    outcome = None if run is None else run(method, tensors)
    return outcome[""] if type(outcome) is dict else call(method, tensors, "pt", outcome)  # type: ignore[no-any-return]


def _reference(tensors: Any, *options: Any) -> Any:
    try:
        return Original(tensors, *options)
    except Exception as error:
        reraise_with_hint(error, _problem(tensors))


class _Pad(Imitator):
    _imitates = Imitation("trl.pad", code_of_trl(_original))
    _keeps_tokenizer = False

    def __init__(self, value: int | float, side: str, multiple: int | None) -> None:
        self.value, self.side, self.multiple = value, side, multiple

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        return lambda tensors: _reference(tensors, self.value, self.side, self.multiple)

    def _finish(self, batch: Any, tensors: Any) -> Any:
        return batch[""]

    def _plan(self, rows: Any, framework: Any) -> Any:
        rounded_up(0, self.multiple)
        layout = BatchLayout(-1, self.multiple or 1, self.side == "left")
        spec = _Tensors(framework="pt", names=("",), main="", bare=True, layout=layout, facts=())
        return spec.make(self, rows)


_Named: Any = type("pad", (_Pad,), {})  # the name that logs show


@functools.lru_cache(maxsize=64, typed=True)
def _remembered(value: int | float, shown: str, side: str, multiple: int | None) -> Any:
    """shown: tells equal values apart, 0.0 and -0.0."""
    return _Named(value, side, multiple)


@planned
def _plan(key: PlanKey) -> Plan:
    (shape,) = column_shapes(key.signature)
    if shape.forms & ~DEEP != TENSOR or shape.kinds.bit_count() != 1:
        reason = "tensors are not on the CPU, or differ in more than their first dimension"
        raise FallBack(reason, "give tensors on the CPU that have the other dimensions in common")
    if not shape.starts:
        raise FallBack("the first tensor is empty", "leave empty tensors out")  # it has a dtype of its own
    return Plan((("", 0, PAD, shape.kinds.bit_length() - 1),))


class _Tensors(Spec):
    plan = staticmethod(_plan)

    def values(self, collator: Any, key: PlanKey) -> dict[str, Any]:
        """The number that torch makes of the padding. Raises FallBack."""
        kind = column_shapes(key.signature)[0].kinds.bit_length() - 1
        try:
            # torch lets one number overflow, and not two
            return {"": torch.full((2,), collator.value, dtype=kinds.torch_dtype(kind), device="cpu")[0].item()}
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            raise FallBack(f"padding_value does not fit {kinds.KINDS[kind]}", "give one that does") from error

    def failed(self, *_: Any) -> Reason:
        return "tensors changed while they were read", None


def _problem(tensors: Any) -> str | None:
    if not isinstance(tensors, (list, tuple)) or not tensors:
        return f"tensors is {kind_of(tensors)}; give a list of tensors, at least one"
    for place, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            return f"tensors[{place}] is {kind_of(tensor)}, not a tensor; give torch.tensor(row)"
        if not tensor.ndim or tensor.ndim != tensors[0].ndim:
            shapes = f"tensors[{place}] has shape {tuple(tensor.shape)}, tensors[0] {tuple(tensors[0].shape)}"
            return f"{shapes}; give all one number of dimensions, at least 1"
    return None
