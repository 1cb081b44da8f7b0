"""The functions on tensors of a GPU: addresses and sizes for the kernels, on the stream that torch works on.

Nothing here waits for the GPU: whoever calls says how long and how many. Offsets are the GPU's, so that rows that do
not fit are cut there, where the CPU raises an error.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from quadrat import _core
from quadrat._memory import (
    BOOL,
    INT64,
    KINDS,
    address_of,
    carried,
    carrier_of,
    kind_of,
    launch,
    on_gpu,
    torch_dtype,
)
from quadrat.ragged import Ragged

if TYPE_CHECKING:
    import torch

MOST_COLUMNS = 16  # of a launch, as in csrc/cuda/calls.hpp
# What an output of flatten_columns is made of, as in csrc/cuda/calls.hpp.
VALUES, SEPARATED, POSITIONS, SEQUENCES, BOUNDS = range(5)


class Column(NamedTuple):
    """A padded column that a launch makes.

    Attributes:
        values: `[total, ...]`; or None, where `fill` stands for the padding and 1 for the tokens: an attention mask.
        offsets: `[rows + 1]` int64.
        width: the padded length, in tokens.
        left: whether padding goes to the left.
        fill: the bits of one element of padding.
        out: `[rows, width, ...]`, contiguous.
    """

    values: torch.Tensor | None
    offsets: torch.Tensor
    width: int
    left: bool
    fill: int
    out: torch.Tensor


def rows_on_gpu(rows: Any) -> Ragged | None:
    """The rows as a `Ragged` where they are on a GPU, else None.

    Raises:
        TypeError: when some are there and some are not, or their dtypes differ.
    """
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
                f"row {row} is not a tensor like row 0, {first.dtype} on {first.device}; rows of one batch are of one "
                "dtype, on one device"
            )
    return Ragged.of_lengths(torch.cat(list(rows)), [len(row) for row in rows])


def bits_of_padding(value: Any, like: torch.Tensor) -> int:
    """The bits of a padding value, a plain number, as one element of the dtype of `like`. Raises OverflowError."""
    if value == 0 and isinstance(value, int):  # of every dtype
        return 0
    if carrier_of(like) is not None:
        return carried(value, like) % (1 << 8 * like.element_size())
    bits, kind = np.zeros(1, np.uint64), kind_of(like.dtype)
    if kind == BOOL and value == 1:
        value = True
    if _core.fill_tail(address_of(bits), kind, 0, 1, value) is not None:
        raise OverflowError(f"padding_value={value!r} does not fit the dtype {KINDS[kind]}")
    return int(bits[0])


def pad_columns(columns: Sequence[Column]) -> None:
    """Fill the outputs of columns of the same number of rows: one launch for every 16 of them."""
    arguments, rows = [], 0
    for values, offsets, width, left, fill, out in columns:
        rows = len(offsets) - 1
        inner = math.prod(out.shape[2:])
        item = out.element_size()
        source = (0, 0) if values is None else (address_of(values), len(values))
        if values is not None and not values.numel():
            source = (address_of(offsets), 0)  # no address would mean a mask; nothing is read there
        one = bits_of_padding(True, out) if values is None else 0
        arguments.append((*source, address_of(offsets), width, left, item, inner, one, fill, address_of(out)))
    for first in range(0, len(arguments), MOST_COLUMNS):
        launch("pad_columns", columns[0].out, arguments[first : first + MOST_COLUMNS], rows)


@functools.cache
def _int64() -> torch.dtype:
    return torch_dtype(INT64)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers, contiguous, and stored as they are."""
    if tensor.is_contiguous() and not (tensor.requires_grad or tensor.is_neg() or tensor.is_conj()):
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def int64(offsets: torch.Tensor) -> torch.Tensor:
    """Offsets as the kernels read them."""
    if offsets.dtype == _int64() and offsets.is_contiguous():
        return offsets
    return offsets.detach().long().contiguous()


def pad(values: torch.Tensor, offsets: torch.Tensor, width: int, *, left: bool, fill: int) -> torch.Tensor:
    """`[rows, width, ...]`; rows are cut to the width."""
    values, offsets = plain(values), int64(offsets)
    out = values.new_empty((len(offsets) - 1, width, *values.shape[1:]))
    pad_columns([Column(values, offsets, width, left, fill, out)])
    return out


def attention_mask(offsets: torch.Tensor, width: int, dtype: torch.dtype, *, left: bool) -> torch.Tensor:
    """`[rows, width]`."""
    offsets = int64(offsets)
    out = offsets.new_empty((len(offsets) - 1, width), dtype=dtype)
    pad_columns([Column(None, offsets, width, left, 0, out)])
    return out


def unpad(padded: torch.Tensor, offsets: torch.Tensor, total: int, *, left: bool) -> torch.Tensor:
    """`[total, ...]`: row i at offsets[i], its first `width` tokens if it is longer; zeros elsewhere."""
    padded, offsets = plain(padded), int64(offsets)
    rows, width = padded.shape[:2]
    out = padded.new_empty((total, *padded.shape[2:]))
    if not rows:
        return out.zero_()
    item, inner = out.element_size(), math.prod(out.shape[1:])
    place = address_of(padded), address_of(offsets), rows, width, left, item, inner
    launch("unpad", out, *place, address_of(out), total)
    return out


def flatten(
    values: torch.Tensor, offsets: torch.Tensor, total: int, *, start: int, fill: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Values, position_ids, seq_idx and cu_seqlens of a flat batch of `total` tokens; padding follows the last row."""
    import torch

    values, offsets = plain(values), int64(offsets)
    rows = len(offsets) - 1
    out = values.new_empty((total, *values.shape[1:]))
    positions = offsets.new_empty(total)
    sequences = offsets.new_empty(total, dtype=torch.int32)
    bounds = offsets.new_empty(rows + 1, dtype=torch.int32)
    item, inner = out.element_size(), math.prod(out.shape[1:])
    columns = [(BOUNDS, 0, 0, 1, 4, 0, 0, address_of(bounds))]
    if rows and total:
        source = address_of(values) if values.numel() else address_of(offsets)
        count = len(values) if values.numel() else 0
        columns += [
            (VALUES, source, count, inner, item, 0, fill, address_of(out)),
            (POSITIONS, 0, 0, 1, 8, start % 2**64, 0, address_of(positions)),
            (SEQUENCES, 0, 0, 1, 4, 0, 2**64 - 1, address_of(sequences)),
        ]
    launch("flatten_columns", bounds, columns, address_of(offsets), rows, total if rows else 0)
    return out, positions, sequences, bounds
