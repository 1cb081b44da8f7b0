"""Hostile rows for the CUDA kernels, and what is left of them, for the emulation and a GPU alike."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import oracles

INT64 = np.iinfo(np.int64)

# Around the sizes of a word, a warp, a block and a piece, where the shares of threads begin and end.
LENGTHS = st.lists(
    st.integers(0, 40) | st.sampled_from([63, 64, 65, 127, 128, 129, 255, 256, 257, 513, 700]), max_size=8
)
KINDS = st.sampled_from(["bool", "uint8", "int16", "float16", "int32", "float32", "int64", "uint64", "float64"])
SIDES = st.sampled_from(["right", "left"])
BITS = st.integers(0, 2**64 - 1)
FAR = [INT64.min, INT64.min + 1, -(2**40), -1, 2**31, 2**32 + 3, 2**32 + 5, INT64.max - 1, INT64.max]
HOSTILE = st.integers(-3, 40) | st.sampled_from(FAR) | st.integers(INT64.min, INT64.max)


def bit_set(ids: Iterable[int], words: int = 0) -> np.ndarray:
    """A bit for each of these ids, in `words` words or more."""
    ids = list(ids)
    members = np.zeros(max([words, *(number // 64 + 1 for number in ids)]), np.uint64)
    for number in ids:
        members[number // 64] |= np.uint64(1 << number % 64)
    return members


def cut_rows(values: np.ndarray, offsets: list[int], width: int) -> list[np.ndarray]:
    """What kernels read of the rows between such offsets: only what lies inside the values, and at most `width`."""
    firsts = [min(max(first, 0), len(values)) for first in offsets[:-1]]
    return [values[first : max(first, last)][:width] for first, last in zip(firsts, offsets[1:], strict=True)]


def cut_lengths(offsets: list[int], width: int) -> list[int]:
    """The lengths of rows of which no value is read."""
    return [min(max(last - first, 0), width) for first, last in itertools.pairwise(offsets)]


def pad_rows(rows: Sequence[np.ndarray], width: int, side: str, fill: int, dtype: Any) -> np.ndarray:
    """copy_rows and fill_gaps, one after the other."""
    out = np.empty((len(rows), width), dtype)
    lengths = [len(row) for row in rows]
    starts = [i * width + (width - length if side == "left" else 0) for i, length in enumerate(lengths)]
    oracles.copy_rows(rows, starts, out.reshape(-1))
    oracles.fill_gaps(lengths, side, fill, out)
    return out
