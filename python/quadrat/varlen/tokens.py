"""Tokens of tensors by their numbers, with gradients: `take` and `put`, each the derivative of the other."""

from __future__ import annotations

import math
from typing import Any

from quadrat.support.extras import needs

with needs("quadrat.bert_padding"):
    import torch

from quadrat.ops._tokens import Places, put_here, take_here
from quadrat.ops._tracked import operators
from quadrat.support.memory import compiling


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Any, indices: Any, lead: int, places: Places | None) -> Any:
        ctx.save_for_backward(indices)
        ctx.shape, ctx.places = tuple(values.shape[:lead]), places
        return take_here(values, indices, lead, places)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (indices,) = ctx.saved_tensors
        return put(gradient, indices, ctx.shape, ctx.places), None, None, None


class _Put(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Any, indices: Any, shape: tuple[int, ...], places: Places | None) -> Any:
        ctx.save_for_backward(indices)
        ctx.lead, ctx.places = len(shape), places
        return put_here(values, indices, shape, places)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (indices,) = ctx.saved_tensors
        return take(gradient, indices, ctx.lead, ctx.places), None, None, None


def take(values: Any, indices: Any, lead: int = 1, places: Places | None = None) -> Any:
    """As `take_here`, with its gradient: where a number comes twice, one of its gradients."""
    if compiling():
        return operators().take_tokens(values.reshape(-1, *values.shape[lead:]), indices)
    places = places or Places.of(indices)
    way = _Take.apply if values.requires_grad and torch.is_grad_enabled() else take_here
    return way(values, indices, lead, places)


def put(values: Any, indices: Any, shape: tuple[int, ...], places: Places | None = None) -> Any:
    """As `put_here`, with its gradient."""
    if compiling():
        out = operators().put_tokens(values, indices, math.prod(shape))
        return out if len(shape) == 1 else out.reshape(*shape, *values.shape[1:])
    places = places or Places.of(indices)
    way = _Put.apply if values.requires_grad and torch.is_grad_enabled() else put_here
    return way(values, indices, shape, places)
