"""Padding, unpadding and tokens of tensors with gradients; `torch.compile` calls these functions between its graphs."""

from collections.abc import Callable
from typing import Any, TypeVar

from quadrat.support.extras import needs

with needs("quadrat.unpad(mask=...)"):
    import torch

from quadrat.ops._padding import pad_here, unpad_here
from quadrat.ops._tokens import MaskLayout, layout_now, put_here, take_here
from quadrat.ragged import Ragged
from quadrat.support.arrays import dense
from quadrat.support.tensors import require_unrecorded

Function = TypeVar("Function", bound=Callable[..., Any])


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


class _Padded(torch.autograd.Function):
    """`padded`, whose derivative is `unpadded`."""

    @staticmethod
    def forward(ctx: Any, values: Any, offsets: Any, width: int, fill: Any, left: bool) -> Any:  # noqa: PLR0917
        ctx.save_for_backward(offsets)
        ctx.total, ctx.left = values.shape[0], left
        rows = Ragged(dense(values, "values"), offsets)
        return pad_here(rows, "left" if left else "right", (width, None), fill)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return unpadded(gradient, ctx.saved_tensors[0], ctx.total, ctx.left), None, None, None, None


class _Unpadded(torch.autograd.Function):
    """`unpadded`, whose derivative is `padded`."""

    @staticmethod
    def forward(ctx: Any, values: Any, offsets: Any, total: int, left: bool) -> Any:
        ctx.save_for_backward(offsets)
        ctx.width, ctx.left = values.shape[1], left
        return unpad_here(dense(values, "padded"), offsets, total, left)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return padded(gradient, ctx.saved_tensors[0], ctx.width, 0, ctx.left), None, None, None


def _between_graphs(function: Function) -> Function:
    made: Function = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return made


@_between_graphs
def padded(values: Any, offsets: Any, width: int, fill: Any, left: bool) -> Any:
    """`pad_here` with its gradient, of values `[total, ...]`."""
    return _Padded.apply(values, offsets, width, fill, left)  # type: ignore[no-untyped-call]


@_between_graphs
def unpadded(values: Any, offsets: Any, total: int, left: bool) -> Any:
    """`unpad_here` with its gradient, of values `[rows, width, ...]`."""
    return _Unpadded.apply(values, offsets, total, left)  # type: ignore[no-untyped-call]


@_between_graphs
def layout_of(mask: Any) -> MaskLayout:
    """The layout of a mask, `[rows, width]`, as flash-attn computes it."""
    require_unrecorded("the mask")
    return layout_now(mask)


@_between_graphs
def take(values: Any, indices: Any, lead: int = 1) -> Any:
    """As `take_here`, with its gradient: where a number comes twice, one of its gradients."""
    if values.requires_grad and torch.is_grad_enabled():
        return _Moved.apply(values, indices, lead, None)  # type: ignore[no-untyped-call]
    return take_here(values, indices, lead)


@_between_graphs
def put(values: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    """As `put_here`, with its gradient."""
    if values.requires_grad and torch.is_grad_enabled():
        return _Moved.apply(values, indices, len(shape), shape)  # type: ignore[no-untyped-call]
    return put_here(values, indices, shape)
