"""Offsets of ragged rows: row `i` runs from `offsets[i]` to before `offsets[i + 1]`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quadrat._memory import compiling, is_tensor, on_gpu


class Facts(NamedTuple):
    """What the functions have to know of the offsets of a `Ragged`: its bounds, and the longest row and its length."""

    first: int
    last: int
    longest: tuple[int, int]


def facts_of(bounds: NDArray[np.int64]) -> Facts:
    """What is known of offsets."""
    lengths = np.diff(bounds)
    row = int(lengths.argmax()) if len(lengths) else 0
    return Facts(int(bounds[0]), int(bounds[-1]), (row, int(lengths[row]) if len(lengths) else 0))


def as_int64(offsets: Any) -> NDArray[np.int64]:
    """Offsets on the CPU as the kernels read them."""
    return np.ascontiguousarray(offsets.numpy() if is_tensor(offsets) else offsets, np.int64)


def offsets_like(values: Any, lengths: Any) -> tuple[Any, Facts | None]:
    """Offsets of rows of these lengths, int64, in the library of `values` and on its device; and what is known of them.

    Lengths on a GPU stay there, and nothing is known.
    """
    if on_gpu(lengths) or (is_tensor(lengths) and compiling()):
        import torch

        offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64, device=lengths.device)
        torch.cumsum(lengths, 0, out=offsets[1:])
        return offsets.to(values.device), None
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.asarray(lengths), out=bounds[1:])
    if not is_tensor(values):
        return bounds, facts_of(bounds)
    import torch

    return torch.from_numpy(bounds).to(values.device, non_blocking=True), facts_of(bounds)
