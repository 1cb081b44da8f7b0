"""Masks as attention has them, and others: runs of kept and of other tokens, rows of none, integers of any size."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

KINDS = st.sampled_from(["bool", "uint8", "int8", "int16", "int32", "int64"])
ONES = st.just(1)
# Shorter and longer than the steps of the kernels.
RUNS = st.lists(st.integers(0, 40), max_size=12)


def _row(runs: list[int], width: int, shape: str) -> Any:
    length = min(sum(runs[:3]), width)
    if shape == "right":
        return np.arange(width) < length
    if shape == "left":
        return np.arange(width) >= width - length
    return np.resize(np.repeat(np.arange(len(runs)) % 2, runs), width) if sum(runs) else np.zeros(width)


@st.composite
def masks(draw: st.DrawFn, ones: st.SearchStrategy[int] = ONES, widest: int = 130) -> Any:
    """`[rows, width]`; `ones`: what stands for a token that is kept."""
    width, shape = draw(st.integers(0, widest)), draw(st.sampled_from(["right", "left", "holes"]))
    rows = [_row(draw(RUNS), width, shape) for _ in range(draw(st.integers(0, 6)))]
    kept = np.array(rows).reshape(len(rows), width).astype(bool)
    kind = np.dtype(draw(KINDS))
    value = draw(ones)
    number = np.array(value % 256 if kind.kind == "u" else value).astype(kind)
    return np.where(kept, number, np.zeros((), kind))


@st.composite
def indices_within(draw: st.DrawFn, size: int, least: int = 0) -> Any:
    """int64 numbers of `size` tokens: runs of them, or rising, or as they come, some several times."""
    if size == 0:
        return np.zeros(0, np.int64)
    order = draw(st.sampled_from(["runs", "rising", "any"]))
    number = st.integers(0, size - 1)
    if order == "any":
        return np.array(draw(st.lists(number, min_size=least, max_size=60)), np.int64)
    if order == "rising":
        chosen = draw(st.sets(number, min_size=least, max_size=60))
        return np.array(sorted(chosen), np.int64)
    starts = draw(st.lists(number, min_size=least, max_size=6))
    parts = [np.arange(start, min(size, start + draw(st.integers(1, 60)))) for start in starts]
    return np.concatenate([np.zeros(0, np.int64), *parts])
