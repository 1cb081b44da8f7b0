"""One naive, readable NumPy function per kernel: the oracle of the tests.

A kernel has the same name here, in csrc/kernels, in csrc/cuda and in tests/kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def copy_rows(rows: Sequence[Array], start: Sequence[int], out: Array) -> None:
    """Copy row i to `out[start[i] : start[i] + len(rows[i])]`, converted to the dtype of the flat array `out`."""
    for row, first in zip(rows, start, strict=True):
        for position, element in enumerate(row):
            out[first + position] = element


def fill_gaps(lengths: Sequence[int], side: str, value: Any, out: Array) -> None:
    """Write `value` to every place of `out`, `[rows, width]`, that rows of these lengths leave free."""
    width = out.shape[1]
    for row, length in enumerate(lengths):
        for position in range(width):
            inside = position < length if side == "right" else position >= width - length
            if not inside:
                out[row, position] = value


def attention_mask(lengths: Sequence[int], side: str, out: Array) -> None:
    """Write 1 to `out`, `[rows, width]`, where rows of these lengths have tokens and 0 where they have padding."""
    width = out.shape[1]
    for row, length in enumerate(lengths):
        for position in range(width):
            inside = position < length if side == "right" else position >= width - length
            out[row, position] = 1 if inside else 0


def position_ids(lengths: Sequence[int], start: int, out: Array) -> None:
    """Write to flat `out` where in its row each token stands, from `start`; places after the last row count on."""
    place = 0
    for length in lengths:
        for position in range(length):
            out[place] = start + position
            place += 1
    for rest in range(place, len(out)):
        out[rest] = out[rest - 1] + 1


def seq_idx(lengths: Sequence[int], out: Array) -> None:
    """Write to flat `out` which row each token belongs to, -1 after the last row."""
    out[:] = -1
    place = 0
    for row, length in enumerate(lengths):
        out[place : place + length] = row
        place += length


def cu_seqlens(lengths: Sequence[int], out: Array) -> None:
    """Write to `out`, `[rows + 1]`, where each row of a flat batch begins, and where the last one ends."""
    for row in range(len(lengths) + 1):
        out[row] = sum(lengths[:row])


def separate_rows(start: Sequence[int], value: Any, out: Array) -> None:
    """Write `value` to `out[start[i]]`, the first place of row i, for every row."""
    for first in start:
        out[first] = value
