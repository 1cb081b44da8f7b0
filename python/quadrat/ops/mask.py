"""`quadrat.attention_mask`: where a padded batch has tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from quadrat import _core
from quadrat._memory import (
    INT64,
    Framework,
    address_of,
    empty,
    framework_of,
    is_tensor,
    kind_of,
    on_gpu,
    torch_dtype,
)
from quadrat.ops._device import attention_mask as device_mask
from quadrat.ops._device import rows_on_gpu
from quadrat.ops.pad import Side, is_left, padded_length
from quadrat.ragged import Ragged, RowSource

_LONGEST = 2**62  # tokens in all


def attention_mask(
    rows: Ragged | Sequence[Any] | Any,
    *,
    side: Side = "right",
    length: int | None = None,
    multiple_of: int | None = None,
    dtype: Any = None,
    return_tensors: Framework | None = None,
) -> Any:
    """Ones where a batch padded by `pad` with the same options has tokens, zeros where it has padding.

    Args:
        rows: a `Ragged`, a list of rows, or the lengths of the rows: a 1-D integer array or tensor, or a list of ints.
        side: where the padding is, "right" or "left".
        length: the padded length, in tokens; by default that of the longest row.
        multiple_of: round the padded length up to a multiple of this.
        dtype: of the mask; int64 by default.
        return_tensors: "np" or "pt"; by default that of `rows`, "np" for Python lists.

    Returns:
        `[rows, length]`, a NumPy array or torch tensor, on the GPU where the rows or lengths are there.

    Raises:
        TypeError: when `rows` are neither rows nor lengths.
        ValueError: when a row is longer than `length`, a length is negative, or an option is unknown. On a GPU longer
            rows are cut, unless it is known without waiting how long they are.
    """
    if (on_device := _offsets_on_gpu(rows)) is not None:
        return _on_gpu(
            *on_device, side=side, length=length, multiple_of=multiple_of, dtype=dtype, return_tensors=return_tensors
        )
    offsets, default = _offsets(rows)
    framework = framework_of(return_tensors, default)
    kind = INT64 if dtype is None else kind_of(dtype)
    count = len(offsets) - 1
    columns = _core.Columns()
    columns.add_ragged(0, INT64, int(offsets[-1]), address_of(offsets), count, 1)
    lengths = np.diff(offsets)
    row = int(lengths.argmax()) if count else 0
    width = padded_length((row, int(lengths[row]) if count else 0), length, multiple_of)
    out, address = empty(framework, (count, width), kind)
    columns.attention_mask(0, address, kind, width, is_left(side))
    return out


def _offsets(rows: Any) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Framework]:
    if isinstance(rows, Ragged):
        offsets = np.ascontiguousarray(rows.offsets, np.int64)
        return offsets - offsets[:1], "pt" if is_tensor(rows.values) else "np"
    if isinstance(rows, np.ndarray) or is_tensor(rows):
        lengths, framework = np.asarray(rows), "pt" if is_tensor(rows) else "np"
    elif rows and all(type(row) is int for row in rows):
        lengths, framework = np.array(rows, np.int64), "np"
    else:
        source = RowSource.of(rows)
        lengths, framework = np.empty(len(source), np.int64), source.framework
        source.columns.lengths(0, address_of(lengths))
    return offsets_of_lengths(lengths)[0], framework  # type: ignore[return-value]  # mypy widens the literals


def offsets_of_lengths(lengths: Any) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Framework]:
    """`[rows + 1]` offsets of rows of these lengths, and the library they came in. Raises TypeError and ValueError."""
    framework: Framework = "pt" if is_tensor(lengths) else "np"
    lengths = np.asarray(lengths.cpu() if is_tensor(lengths) else lengths)
    if not lengths.size:
        lengths = lengths.astype(np.int64)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu":
        raise TypeError(f"lengths must be integers of one dimension, not {lengths.dtype} of {lengths.ndim}")
    if lengths.size and int(lengths.min()) < 0:
        raise ValueError(f"row {int(lengths.argmin())} has the negative length {int(lengths.min())}")
    if lengths.size and int(lengths.max()) > _LONGEST // lengths.size:
        raise ValueError(
            f"row {int(lengths.argmax())} has the length {int(lengths.max())}: no array holds such a batch"
        )
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths.astype(np.int64), out=offsets[1:])
    return offsets, framework


def _offsets_on_gpu(rows: Any) -> tuple[Any, int | None] | None:
    """Offsets on a GPU, and the length of the longest row if it is known; None for rows on the CPU."""
    if (ragged := rows_on_gpu(rows)) is not None:
        return ragged.offsets, None if ragged._facts is None else ragged.facts.longest[1]
    if not on_gpu(rows):
        return None
    if rows.dim() != 1 or rows.dtype.is_floating_point:
        raise TypeError(f"lengths must be integers of one dimension, not {rows.dtype} of {rows.dim()}")
    return Ragged.of_lengths(rows, rows).offsets, None


def _on_gpu(offsets: Any, longest: int | None, **options: Any) -> Any:
    if framework_of(options["return_tensors"], "pt") == "np":
        raise ValueError("rows on a GPU become torch tensors, not NumPy arrays")
    length, dtype = options["length"], options["dtype"]
    if length is None and longest is None:
        longest = Ragged(offsets, offsets).facts.longest[1]
    width = padded_length((0, longest or 0), length, options["multiple_of"])
    kind = INT64 if dtype is None else kind_of(dtype)
    return device_mask(offsets, width, torch_dtype(kind), left=is_left(options["side"]))
