"""The layout of a mask: which tokens it keeps. Computed once for a mask, for all layers."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import torch

from quadrat.ops._tokens import Layout, is_ours, layout_by_torch, mask_layout
from quadrat.ops._tracked import operators
from quadrat.support.gpu import stream_of
from quadrat.support.memory import WeakStorage, WeakTensor, compiling

MOST = 16  # masks that are remembered


class _Known(NamedTuple):
    """A layout, and what it was made of. Neither the mask nor its memory is kept alive by it."""

    mask: WeakTensor
    storage: WeakStorage
    version: int
    layout: Layout
    versions: tuple[int, ...]  # of the layout's tensors, which belong to whoever asks

    def holds_for(self, anchor: Any, mask: Any) -> bool:
        if self.mask.is_of(anchor) and self.version == mask._version and self.storage.is_of(mask):
            return self.versions == _versions(self.layout)
        return False


def _versions(layout: Layout) -> tuple[int, ...]:
    return layout.indices._version, layout.cu_seqlens._version, layout.lengths._version


# From the oldest to the newest. Single operations on it are atomic; the lock is for several operations.
_known: dict[Any, _Known] = {}
_lock = threading.RLock()


def layout_of(mask: Any) -> Layout:
    """The layout of a mask, `[rows, width]`, as flash-attn computes it.

    The layouts of the last few masks are cached. The key is the tensor (or the tensor it is a view of), its memory,
    shape and strides, and torch's version counter of writes to it. Tensors without that counter, made in
    `torch.inference_mode`, are read each time, and so are all masks while a CUDA graph is captured. Writes that torch
    does not count, through NumPy or `.data`, are not noticed.
    """
    if compiling():
        return _traced(mask)
    require_mask(mask)
    if not is_ours(mask) or mask.is_inference() or (mask.is_cuda and torch.cuda.is_current_stream_capturing()):
        return compute(mask)
    anchor = mask._base if mask._is_view() else mask
    anchor = mask if anchor is None else anchor
    place = mask.storage_offset(), mask.shape, mask.stride(), mask.dtype
    key = (id(anchor), *place, stream_of(mask.device) if mask.is_cuda else None)
    known = _known.get(key)
    if known is not None and known.holds_for(anchor, mask):
        return known.layout
    version = mask._version  # before its numbers are read
    layout = compute(mask)

    def forget(_: Any) -> None:
        _known.pop(key, None)

    made = _Known(WeakTensor(anchor, forget), WeakStorage(mask), version, layout, _versions(layout))
    with _lock:
        _known.pop(key, None)
        _known[key] = made
        for old in list(_known)[:-MOST]:
            _known.pop(old, None)
    return layout


def require_mask(mask: Any) -> None:
    """Checks that a mask is a tensor of rows. Raises TypeError and ValueError."""
    if not isinstance(mask, torch.Tensor):
        raise TypeError(f"the mask must be a torch tensor, not {type(mask).__name__}")
    if mask.dim() != 2:
        raise ValueError(f"the mask must be [rows, width], not {list(mask.shape)}")


def compute(mask: Any) -> Layout:
    """The same, without the cache."""
    found = mask_layout(mask) if is_ours(mask) else None
    return found or layout_by_torch(mask)


def _traced(mask: Any) -> Layout:
    indices, cu_seqlens, lengths, longest = operators().mask_layout(mask)
    return Layout(indices, cu_seqlens, lengths, longest.item())
