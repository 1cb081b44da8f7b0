"""Tokens of tensors by their numbers, what a mask keeps, and padding and unpadding, all with gradients.

`torch.compile` calls these functions between its graphs. Those whose names end with "here" have no gradient.
"""

import contextlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from quadrat import _core
from quadrat.ops._padding import pad_here, unpad_here
from quadrat.ragged import Ragged
from quadrat.support import gpu
from quadrat.support.arrays import bytes_per_token, dense, room_like
from quadrat.support.columns import explain
from quadrat.support.extras import needs
from quadrat.support.kinds import INT32, INT64
from quadrat.support.memory import address_of, empty
from quadrat.support.tensors import is_readable, on_gpu, require_unrecorded

with needs("quadrat.unpad(mask=...)"):
    import torch

Function = TypeVar("Function", bound=Callable[..., Any])
Moves = Callable[[Any, Any], Any]


class MaskLayout(NamedTuple):
    """Where the tokens are that a mask keeps."""

    indices: Any  # int64 `[total]`, places in the flattened mask
    cu_seqlens: Any  # int32 `[rows + 1]`
    lengths: Any  # int32 `[rows]`
    longest: Any  # an int; of what torch records, a tensor


def layout_now(mask: Any) -> MaskLayout:
    """The layout of a mask, `[rows, width]`, as flash-attn computes it, with one wait for a GPU."""
    layout = None
    if is_readable(mask) and not (mask.is_floating_point() or mask.is_complex()):
        layout = (_layout_on_gpu if on_gpu(mask) else _layout_here)(dense(mask, "the mask"))
    return layout or _layout_by_torch(mask)


def _layout_by_torch(mask: Any) -> MaskLayout:
    """As flash-attn has it: lengths are sums, whatever numbers a mask has."""
    lengths = mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
    cu_seqlens = torch.nn.functional.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    longest = int(lengths.max()) if len(lengths) else 0
    return MaskLayout(indices, cu_seqlens, lengths, longest)


def _layout_here(mask: Any) -> MaskLayout | None:
    """None for numbers other than 0 and 1, as on a GPU."""
    rows, width = mask.shape
    item, place = mask.element_size(), address_of(mask)
    cu_seqlens, bounds = empty("pt", (rows + 1,), INT32)
    lengths, counts = empty("pt", (rows,), INT32)
    failure, total, longest, plain = _core.mask_layout(place, item, width, (bounds, rows + 1), counts)
    if failure is not None or not plain:
        return None
    indices, numbers = empty("pt", (total,), INT64)
    if (failure := _core.mask_indices(place, item, rows * width, (numbers, total))) is not None:
        raise ValueError(explain(failure))
    return MaskLayout(indices, cu_seqlens, lengths, longest)


def _layout_on_gpu(mask: Any) -> MaskLayout | None:
    rows, width = mask.shape
    if not mask.numel():
        return None
    segments = rows * -(-width // _core.MASK_SEGMENT)
    sizes = (4 + segments, torch.int64), (rows * width, torch.int64), (rows + 1, torch.int32), (rows, torch.int32)
    tensors = [mask.new_empty(size, dtype=dtype) for size, dtype in sizes]
    shape = address_of(mask), mask.element_size(), rows, width
    gpu.launch("mask_layout", mask.device, *shape, *map(address_of, tensors))
    state, indices, cu_seqlens, lengths = tensors
    total, longest, unusual = state[:3].tolist()  # how many indices count; whether torch must make the layout
    if unusual:
        return None
    indices = indices[:total]
    indices = indices.clone() if 2 * total < rows * width else indices  # not to keep room for the rest
    return MaskLayout(indices, cu_seqlens, lengths, longest)


def _room(like: Any, *shape: int) -> Any:
    with contextlib.suppress(TypeError):  # of a dtype that has no name here
        if not on_gpu(like):
            return room_like(like, shape)[0]
    return like.new_empty(shape)


def take_here(values: Any, indices: Any, lead: int) -> Any:
    """`[count, ...]`, without a gradient: tokens by number in `lead` dimensions. Raises IndexError, on a CPU."""
    values, indices = dense(values, "values"), indices.long().contiguous()
    out = _room(values, len(indices), *values.shape[lead:])
    _take(values, math.prod(values.shape[:lead]), bytes_per_token(values, lead), indices, out)
    return out


def _take(values: Any, size: int, token: int, indices: Any, out: Any) -> None:
    place, numbers = (address_of(values), size, token), (address_of(indices), len(indices))
    if on_gpu(values):
        gpu.launch("take_tokens", values.device, *place, *numbers, address_of(out))
    elif (failure := _core.take_tokens(*place, numbers, address_of(out))) is not None:
        raise _outside(indices, failure[1], size)


def put_here(values: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    """`[*shape, ...]`, without a gradient: tokens at these numbers, zeros elsewhere. Raises IndexError, on a CPU."""
    values, indices = dense(values, "values"), indices.long().contiguous()
    if len(values) != len(indices):
        raise ValueError(f"there are {len(values)} tokens and {len(indices)} indices")
    size, token = math.prod(shape), bytes_per_token(values, 1)
    if on_gpu(values):
        out, tokens = values.new_empty((*shape, *values.shape[1:])), torch.arange(len(indices), device=indices.device)
        _take(values, len(values), token, indices.new_full((size,), -1).scatter_(0, indices, tokens), out)
        return out
    out = _room(values, *shape, *values.shape[1:])
    place = address_of(values), token, (address_of(indices), len(indices))
    if (failure := _core.put_tokens(*place, address_of(out), size)) is not None:
        raise _outside(indices, failure[1], size)
    return out


def _outside(indices: Any, place: int, size: int) -> IndexError:
    return IndexError(f"indices must be from 0 to below {size}, but indices[{place}] is {int(indices[place])}")


class _Linear(torch.autograd.Function):
    """A linear function of values and of numbers that say where they go, and the one that takes gradients back."""

    @staticmethod
    def forward(ctx: Any, values: Any, places: Any, function: Moves, back: Moves) -> Any:
        ctx.save_for_backward(places)
        ctx.back = back
        return function(values, places)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return ctx.back(gradient, *ctx.saved_tensors), None, None, None


def _between_graphs(function: Function) -> Function:
    disabled: Function = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return disabled


@_between_graphs
def padded(values: Any, offsets: Any, width: int, fill: Any, left: bool) -> Any:
    """`pad_here` with its gradient, of values `[total, ...]`."""

    def pad(values: Any, offsets: Any) -> Any:
        return pad_here(Ragged(values, offsets), "left" if left else "right", (width, None), fill)

    back = partial(unpadded, total=len(values), left=left)
    return _Linear.apply(values, offsets, pad, back)  # type: ignore[no-untyped-call]


@_between_graphs
def unpadded(values: Any, offsets: Any, total: int, left: bool) -> Any:
    """`unpad_here` with its gradient, of values `[rows, width, ...]`."""
    unpad, back = partial(unpad_here, total=total, left=left), partial(padded, width=values.shape[1], fill=0, left=left)
    return _Linear.apply(values, offsets, unpad, back)  # type: ignore[no-untyped-call]


@_between_graphs
def layout_of(mask: Any) -> MaskLayout:
    """The layout of a mask, `[rows, width]`, as flash-attn computes it."""
    require_unrecorded("the mask")
    return layout_now(mask)


@_between_graphs
def take(values: Any, indices: Any, lead: int = 1) -> Any:
    """As `take_here`, with its gradient: where a number comes twice, one of its gradients."""
    if not (values.requires_grad and torch.is_grad_enabled()):
        return take_here(values, indices, lead)
    function, back = partial(take_here, lead=lead), partial(put, shape=tuple(values.shape[:lead]))
    return _Linear.apply(values, indices, function, back)  # type: ignore[no-untyped-call]


@_between_graphs
def put(values: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    """As `put_here`, with its gradient."""
    if not (values.requires_grad and torch.is_grad_enabled()):
        return put_here(values, indices, shape)
    function, back = partial(put_here, shape=shape), partial(take, lead=len(shape))
    return _Linear.apply(values, indices, function, back)  # type: ignore[no-untyped-call]
