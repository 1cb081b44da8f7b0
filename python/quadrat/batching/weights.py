"""Weights: tokens that a row takes besides those of its column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from quadrat.ragged.offsets import as_lengths
from quadrat.support.arrays import IntArray


def weighted(lengths: IntArray, parts: Iterable[list[Any]]) -> IntArray:
    """Lengths and weights together. A part has the weights of some rows. Raises TypeError or ValueError."""
    found = [as_lengths(part if hasattr(part, "dtype") else np.asarray(part), "weights") for (part,) in parts]
    weights: IntArray = np.concatenate([lengths[:0], *found])
    if len(weights) != len(lengths):
        raise ValueError(f"there are {len(weights)} weights for {len(lengths)} rows")
    return lengths + weights
