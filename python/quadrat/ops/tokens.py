"""Tokens of tensors by their numbers, with gradients: `take` and `put`, each the derivative of the other."""

import math
from typing import Any

from quadrat.support.extras import needs

with needs("quadrat.unpad(mask=...)"):
    import torch

from quadrat.ops._tokens import MaskLayout, layout_now, put_here, take_here
from quadrat.ops._tracked import operators
from quadrat.support.tensors import recording


class _Moved(torch.autograd.Function):
    """`take_here`, or with a shape `put_here`: each is the derivative of the other."""

    @staticmethod
    def forward(ctx: Any, values: Any, indices: Any, lead: int, shape: tuple[int, ...] | None) -> Any:
        ctx.save_for_backward(indices)
        ctx.lead, ctx.shape = lead, tuple(values.shape[:lead]) if shape is None else None
        return take_here(values, indices, lead) if shape is None else put_here(values, indices, shape)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (indices,) = ctx.saved_tensors
        back = take(gradient, indices, ctx.lead) if ctx.shape is None else put(gradient, indices, ctx.shape)
        return back, None, None, None


def layout_of(mask: Any) -> MaskLayout:
    """The layout of a mask, `[rows, width]`, as flash-attn computes it."""
    return MaskLayout(*operators().mask_layout(mask)) if recording() else layout_now(mask)


def take(values: Any, indices: Any, lead: int = 1) -> Any:
    """As `take_here`, with its gradient: where a number comes twice, one of its gradients."""
    if recording():
        return operators().take_tokens(values.reshape(-1, *values.shape[lead:]), indices)
    if values.requires_grad and torch.is_grad_enabled():
        return _Moved.apply(values, indices, lead, None)  # type: ignore[no-untyped-call]
    return take_here(values, indices, lead)


def put(values: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    """As `put_here`, with its gradient."""
    if recording():
        out = operators().put_tokens(values, indices, math.prod(shape))
        return out if len(shape) == 1 else out.reshape(*shape, *values.shape[1:])
    if values.requires_grad and torch.is_grad_enabled():
        return _Moved.apply(values, indices, len(shape), shape)  # type: ignore[no-untyped-call]
    return put_here(values, indices, shape)
