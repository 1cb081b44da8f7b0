"""`quadrat.unpad`: the rows of a padded array without their padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from quadrat import _core
from quadrat.ops._padding import Side, as_int, copied, is_left, unpad_here
from quadrat.ragged import Ragged
from quadrat.ragged.offsets import checked_offsets, offsets_like, offsets_of, tensor_or_array
from quadrat.support.arrays import bytes_per_token, dense, require_array, require_plain, room_like
from quadrat.support.columns import explain
from quadrat.support.kinds import BOOL, torch_dtype
from quadrat.support.memory import address_of
from quadrat.support.tensors import is_tensor, on_gpu, recording, require_unrecorded, tracked

if TYPE_CHECKING:
    from quadrat.support.arrays import SameArray


def unpad(
    padded: SameArray, *, lengths: Any = None, mask: Any = None, padding_side: Side = "right", total: int | None = None
) -> Ragged[SameArray]:
    """Remove the padding of a padded array.

    Args:
        padded: `[rows, width, ...]`, a NumPy array or torch tensor, on the CPU or a GPU.
        lengths: `[rows]` integers, the number of tokens of each row: an array of the same library, or a list.
        mask: instead of `lengths`, `[rows, width]`, nonzero for the tokens to keep, such as an attention mask or
            `labels != -100`. The tokens may be anywhere in their rows.
        padding_side: with `lengths`, where the padding is, "right" or "left".
        total: with `lengths`, their sum, if you know it. Without it, the call waits for lengths that are on a GPU.

    Returns:
        A `Ragged` of the kept tokens, `[total, ...]`, a copy in the array's library and on its device.

    Raises:
        TypeError: when `padded` is not an array, has an unsupported dtype, or has no numbers in memory; when lengths
            are not integers.
        ValueError: when a row is longer than the width, shapes differ, or an option is unknown. On a GPU, longer rows
            are cut, and zeros fill the rest.

    Examples:
        >>> import numpy, quadrat
        >>> padded = numpy.array([[5, 6, 7], [8, 0, 0]])
        >>> quadrat.unpad(padded, lengths=[3, 1]).to_lists()
        [[5, 6, 7], [8]]
        >>> labels = numpy.array([[-100, 1, 2], [-100, 3, -100]])
        >>> quadrat.unpad(labels, mask=labels != -100).to_lists()
        [[1, 2], [3]]
    """
    require_array(padded, "padded")
    if padded.ndim < 2:
        raise ValueError(f"padded must have rows and tokens, but has {padded.ndim} dimension(s)")
    if (lengths is None) == (mask is None):
        raise ValueError("give either lengths or a mask")
    left, total = is_left(padding_side), None if total is None else as_int(total, "total")
    if mask is not None:
        return _unpad_by_mask(padded, mask)
    require_plain(lengths, "lengths")
    if len(lengths) != len(padded):
        raise ValueError(f"there are {len(padded)} rows and {len(lengths)} lengths")
    return _unpad(padded, lengths, left, total)


def _unpad(padded: Any, lengths: Any, left: bool, total: int | None) -> Ragged:
    if on_gpu(lengths) or (is_tensor(lengths) and recording()):
        offsets, facts = offsets_like(padded, lengths)
        if total is None:
            require_unrecorded("lengths without total=")
            total = int(lengths.sum())
    else:
        bounds, facts = offsets_of(lengths)
        (row, longest), width = facts.longest, padded.shape[1]
        if longest > width:
            message = f"it has {longest} tokens, not at most {width}"
            raise ValueError(f"row {row} is longer than the padded length: {message}")
        offsets, total = tensor_or_array(bounds, padded), facts.last
        if not (on_gpu(padded) or tracked(padded)):
            return Ragged.known(copied(padded, bounds, total, left), offsets, facts)
    if not tracked(padded):
        return Ragged.known(unpad_here(padded, offsets, total, left), offsets, facts)
    from quadrat.ops.tokens import unpadded

    return Ragged.known(unpadded(padded, offsets, total, left), offsets, facts)


def _unpad_by_mask(padded: Any, mask: Any) -> Ragged:
    if is_tensor(mask) != is_tensor(padded) or not (is_tensor(mask) or isinstance(mask, np.ndarray)):
        raise TypeError(f"the mask must be of the library of padded, not {type(mask).__name__}")
    require_plain(mask, "mask")
    if tuple(mask.shape) != tuple(padded.shape[:2]):
        raise ValueError(f"the mask must be {tuple(padded.shape[:2])}, not {tuple(mask.shape)}")
    if is_tensor(padded) and mask.device != padded.device:
        raise ValueError(f"the mask is on {mask.device}, the padded tensor on {padded.device}")
    if on_gpu(padded) or tracked(padded):
        from quadrat.ops.tokens import layout_of, take

        layout = layout_of(mask != 0)
        return Ragged.of_lengths(take(padded, layout.indices, 2), layout.lengths)
    is_bool = mask.dtype == (torch_dtype(BOOL) if is_tensor(mask) else bool)
    kept = dense(mask if is_bool else mask != 0, "mask")
    rows, width = kept.shape
    bounds = np.empty(rows + 1, np.int64)
    offsets = address_of(bounds), len(bounds)
    _core.count_masked(address_of(kept), width, offsets)
    _, facts = checked_offsets(bounds, rows * width)
    source = dense(padded, "padded")
    values, address = room_like(source, (facts.last, *source.shape[2:]))
    place = address_of(source), address_of(kept), width, bytes_per_token(source, 2), offsets, address
    if (failure := _core.unpad_masked(*place)) is not None:
        raise ValueError(explain(failure))
    return Ragged.known(values, tensor_or_array(bounds, padded), facts)
