"""The functions on tensors of a GPU: addresses and sizes for the kernels.

Nothing here waits for the GPU: callers know all sizes. Rows that do not fit are cut, where the CPU raises an error.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from quadrat import _core
from quadrat.ragged import Ragged
from quadrat.support import gpu
from quadrat.support.arrays import carried, carrier_of, dense, fill_value
from quadrat.support.gpu import FlatColumn, PadColumn
from quadrat.support.kinds import INT32, KINDS, kind_of, torch_dtype
from quadrat.support.memory import address_of, interop
from quadrat.support.tensors import on_gpu

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def rows_on_gpu(rows: Any) -> Ragged | None:
    """The rows as a `Ragged` where they are on a GPU, else None. Raises TypeError when devices or dtypes differ."""
    if isinstance(rows, Ragged):
        return rows if on_gpu(rows.values) else None
    if not isinstance(rows, (list, tuple)) or not rows or not on_gpu(rows[0]):
        return None
    import torch

    first = rows[0]
    for row, tensor in enumerate(rows):
        place = (tensor.device, tensor.dtype, tensor.shape[1:]) if on_gpu(tensor) and tensor.dim() > 0 else None
        if place != (first.device, first.dtype, first.shape[1:]):
            raise TypeError(
                f"row {row} is not a tensor like row 0, {first.dtype} on {first.device}; all rows of a batch must have "
                "one dtype and one device"
            )
    return Ragged.of_lengths(torch.cat(list(rows)), [len(row) for row in rows])


def bits_of_padding(value: Any, like: Tensor) -> int:
    """The bits of a padding value as one element of the dtype of `like`. Raises TypeError and OverflowError."""
    kind = None if carrier_of(like.dtype) is not None else kind_of(like.dtype)
    value = fill_value(value, kind)
    if value == 0 and isinstance(value, int):  # of every dtype
        return 0
    if kind is None:
        return carried(value, like) % (1 << 8 * like.element_size())
    bits, empty_row = np.zeros(1, np.uint64), _core.Columns()
    empty_row.add_values([()], interop())
    if empty_row.pad(0, address_of(bits), kind, 1, False, value) is not None:
        raise OverflowError(f"padding_value={value!r} does not fit the dtype {KINDS[kind]}")
    return int(bits[0])


def column_of(out: Tensor, values: Tensor | None, offsets: Tensor, *, left: bool, fill: int = 0) -> PadColumn:
    """A column for a launch: `values`, `[total, ...]`, to `out`, `[rows, width, ...]`; without, an attention mask."""
    item, inner = out.element_size(), math.prod(out.shape[2:])
    source, bits = ((0, 0), bits_of_padding(True, out)) if values is None else (_source_of(values, offsets), 0)
    return PadColumn(*source, address_of(offsets), out.shape[1], left, item, inner, bits, fill, address_of(out))


def _filled(out: Tensor, values: Tensor | None, offsets: Tensor, *, left: bool, fill: int = 0) -> Tensor:
    offsets = offsets.long().contiguous()
    gpu.pad_columns([column_of(out, values, offsets, left=left, fill=fill)], len(out), out.device)
    return out


def _source_of(values: Tensor, offsets: Tensor) -> tuple[int, int]:
    # Without an address it would be a mask; nothing is read of values that are empty.
    return (address_of(values), len(values)) if values.numel() else (address_of(offsets), 0)


def pad(values: Tensor, offsets: Tensor, width: int, *, left: bool, padding_value: Any) -> Tensor:
    values = dense(values, "values")
    out = values.new_empty((len(offsets) - 1, width, *values.shape[1:]))
    return _filled(out, values, offsets, left=left, fill=bits_of_padding(padding_value, values))


def attention_mask(offsets: Tensor, width: int, dtype: torch.dtype, *, left: bool) -> Tensor:
    return _filled(offsets.new_empty((len(offsets) - 1, width), dtype=dtype), None, offsets, left=left)


def unpad(padded: Tensor, offsets: Tensor, total: int, *, left: bool) -> Tensor:
    """`[total, ...]`: row i at offsets[i], its first `width` tokens if it is longer; zeros elsewhere."""
    padded, offsets = dense(padded, "padded"), offsets.long().contiguous()
    rows, width = padded.shape[:2]
    out = padded.new_empty((total, *padded.shape[2:]))
    if not rows:
        return out.zero_()
    item, inner = out.element_size(), math.prod(out.shape[1:])
    place = address_of(padded), address_of(offsets), rows, width, left, item, inner
    gpu.launch("unpad", out.device, *place, address_of(out), total)
    return out


def flatten(
    values: Tensor, offsets: Tensor, total: int, *, start: int, padding_value: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values, position_ids, seq_idx and cu_seqlens of a flat batch of `total` tokens; padding follows the last row."""
    values, offsets, fill = dense(values, "values"), offsets.long().contiguous(), bits_of_padding(padding_value, values)
    rows = len(offsets) - 1
    out = values.new_empty((total, *values.shape[1:]))
    positions = offsets.new_empty(total)
    sequences, bounds = (offsets.new_empty(size, dtype=torch_dtype(INT32)) for size in (total, rows + 1))
    item, inner = out.element_size(), math.prod(out.shape[1:])
    columns = [FlatColumn(_core.FLAT_CONTENTS.BOUNDS, 0, 0, 1, 4, 0, 0, address_of(bounds))]
    if rows and total:
        source = _source_of(values, offsets)
        columns += [
            FlatColumn(_core.FLAT_CONTENTS.VALUES, *source, inner, item, 0, fill, address_of(out)),
            FlatColumn(_core.FLAT_CONTENTS.POSITIONS, 0, 0, 1, 8, start % 2**64, 0, address_of(positions)),
            FlatColumn(_core.FLAT_CONTENTS.SEQUENCES, 0, 0, 1, 4, 0, 2**64 - 1, address_of(sequences)),
        ]
    gpu.flatten_columns(columns, address_of(offsets), rows, total if rows else 0, bounds.device)
    return out, positions, sequences, bounds
