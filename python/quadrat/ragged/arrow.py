"""Rows of flat values as an Arrow array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quadrat.support.arrays import IntArray, carrier_of
from quadrat.support.extras import needs
from quadrat.support.tensors import is_tensor


def list_array(values: Any, bounds: IntArray) -> Any:
    """`Ragged.to_arrow`, of `values` in host memory, `[total, ...]`, and `bounds`, `[rows + 1]` from 0 to `total`."""
    with needs("Ragged.to_arrow"):
        import pyarrow as pa
    kind = str(values.dtype).removeprefix("torch.")
    if carrier_of(values.dtype) is not None and kind != "float16":
        raise TypeError(
            f"Arrow has no {kind}: convert the values first, for example "
            "`quadrat.Ragged(ragged.values.float(), ragged.offsets).to_arrow()`"
        )
    falls = np.flatnonzero(bounds[1:] < bounds[:-1])
    if falls.size:
        raise ValueError(f"offsets must not decrease, but do at row {int(falls[0])}")
    numbers = np.ascontiguousarray(values.numpy(force=True) if is_tensor(values) else values)
    items = pa.array(numbers.reshape(-1))
    for axis in range(numbers.ndim - 1, 0, -1):
        lists, count = pa.list_(items.type, numbers.shape[axis]), math.prod(numbers.shape[:axis])
        # FixedSizeListArray.from_arrays refuses lists of size 0.
        items = pa.Array.from_buffers(lists, count, [None], null_count=0, children=[items])
    if bounds[-1] > np.iinfo(np.int32).max:
        return pa.LargeListArray.from_arrays(pa.array(bounds), items)
    return pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), items)
