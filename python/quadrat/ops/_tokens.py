"""Tokens of tensors by their numbers, and what a mask keeps, on the CPU and a GPU, without a gradient."""

import contextlib
import math
from typing import Any, NamedTuple

from quadrat import _core
from quadrat.support import gpu
from quadrat.support.arrays import bytes_per_token, dense, room_like
from quadrat.support.columns import explain
from quadrat.support.extras import needs
from quadrat.support.kinds import INT32, INT64
from quadrat.support.memory import address_of, empty
from quadrat.support.tensors import is_readable, on_gpu

with needs("quadrat.unpad(mask=...)"):
    import torch


class MaskLayout(NamedTuple):  # of the tokens that a mask keeps
    indices: Any  # int64 `[total]`, places in the flattened mask
    cu_seqlens: Any  # int32 `[rows + 1]`
    lengths: Any  # int32 `[rows]`
    longest: Any  # an int; of what torch records, a tensor


def layout_now(mask: Any) -> MaskLayout:
    """The layout of a mask, `[rows, width]`, as flash-attn computes it, with one wait for a GPU."""
    found = None
    if is_readable(mask) and not (mask.is_floating_point() or mask.is_complex()):
        found = (_layout_on_gpu if on_gpu(mask) else _layout_here)(dense(mask, "the mask"))
    return found or _layout_by_torch(mask)


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
        indices, cu_seqlens = mask.new_empty(0, dtype=torch.int64), mask.new_zeros(rows + 1, dtype=torch.int32)
        return MaskLayout(indices, cu_seqlens, cu_seqlens.new_zeros(rows), 0)
    state, indices, cu_seqlens, lengths = launched_layout(mask)
    total, longest, unusual = state[:3].tolist()
    if unusual:
        return None
    indices = indices[:total]
    indices = indices.clone() if 2 * total < rows * width else indices  # not to keep room for the rest
    return MaskLayout(indices, cu_seqlens, lengths, longest)


def launched_layout(mask: Any) -> list[Any]:
    """State, indices, cu_seqlens and lengths of a mask with elements on a GPU, which nothing has waited for.

    The state begins with how many indices count, the longest length, and whether torch must make the layout instead.
    """
    rows, width = mask.shape
    segments = rows * -(-width // _core.MASK_SEGMENT)
    sizes = (4 + segments, torch.int64), (rows * width, torch.int64), (rows + 1, torch.int32), (rows, torch.int32)
    made = [mask.new_empty(size, dtype=dtype) for size, dtype in sizes]
    gpu.launch("mask_layout", mask.device, address_of(mask), mask.element_size(), rows, width, *map(address_of, made))
    return made


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
