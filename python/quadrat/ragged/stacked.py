"""Rows as one NumPy array, where they have one length."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def stacked(rows: Iterable[Any], lengths: NDArray[np.int64], dtype: Any, copy: bool | None) -> NDArray[Any]:
    """Rows of these lengths below one another. Raises TypeError and ValueError, as `Ragged.__array__` says."""
    if np.dtype(dtype) != object and len(lengths) and (lengths != lengths[0]).any():
        raise TypeError(
            f"a Ragged with rows of {lengths.min()} to {lengths.max()} tokens is not rectangular: use to_padded() "
            "for a padded array, to_lists() for lists, or .values and .offsets for the flat numbers"
        )
    if copy is False:
        raise ValueError("a Ragged cannot become an array without a copy: use .values for its own memory")
    return np.array(list(rows), dtype)
