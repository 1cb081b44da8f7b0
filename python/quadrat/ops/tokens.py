"""Tokens of tensors by their numbers, with gradients: `take` and `put`, each the derivative of the other."""

from __future__ import annotations

import math
from typing import Any

from quadrat.support.extras import needs

with needs("quadrat.bert_padding"):
    import torch

from quadrat.ops._tokens import MaskLayout, layout_now, put_here, require_mask, take_here
from quadrat.ops._tracked import operators
from quadrat.support.tensors import recording


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Any, indices: Any, lead: int) -> Any:
        ctx.save_for_backward(indices)
        ctx.shape = tuple(values.shape[:lead])
        return take_here(values, indices, lead)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (indices,) = ctx.saved_tensors
        return put(gradient, indices, ctx.shape), None, None


class _Put(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Any, indices: Any, shape: tuple[int, ...]) -> Any:
        ctx.save_for_backward(indices)
        ctx.lead = len(shape)
        return put_here(values, indices, shape)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (indices,) = ctx.saved_tensors
        return take(gradient, indices, ctx.lead), None, None


def layout_of(mask: Any) -> MaskLayout:
    """The layout of a mask, `[rows, width]`, as flash-attn computes it."""
    if recording():
        indices, cu_seqlens, lengths, longest = operators().mask_layout(mask)
        return MaskLayout(indices, cu_seqlens, lengths, longest.item())
    require_mask(mask)
    return layout_now(mask)


def take(values: Any, indices: Any, lead: int = 1) -> Any:
    """As `take_here`, with its gradient: where a number comes twice, one of its gradients."""
    if recording():
        return operators().take_tokens(values.reshape(-1, *values.shape[lead:]), indices)
    way = _Take.apply if values.requires_grad and torch.is_grad_enabled() else take_here
    return way(values, indices, lead)


def put(values: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    """As `put_here`, with its gradient."""
    if recording():
        out = operators().put_tokens(values, indices, math.prod(shape))
        return out if len(shape) == 1 else out.reshape(*shape, *values.shape[1:])
    way = _Put.apply if values.requires_grad and torch.is_grad_enabled() else put_here
    return way(values, indices, shape)
