"""`Ragged`s of either library, made by hand."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import torch

import quadrat
from quadrat import _core

KINDS = _core.kinds
INTS = [kind for kind in KINDS if "int" in kind]
MOVED = [*KINDS, "bfloat16", "complex64"]
ROWS = st.lists(st.lists(st.integers(0, 100), max_size=9), max_size=8)
TRAILING = st.sampled_from([(), (1,), (3,), (2, 2), (0,)])
LIBRARIES = {"np": np, "pt": torch}
TYPES = {"np": np.ndarray, "pt": torch.Tensor}


def array(values: Any, dtype: Any, library: str) -> Any:
    made = np.array(values, dtype)
    return torch.from_numpy(made) if library == "pt" else made


def ragged(rows: Any, library: str = "np", kind: str = "int64", trailing: Any = ()) -> Any:
    total = sum(map(len, rows))
    flat = np.array([number for row in rows for number in row], np.int64).reshape(total, *[1] * len(trailing))
    values = np.broadcast_to(flat, (total, *trailing)).astype(kind)
    offsets = np.cumsum([0, *map(len, rows)])
    return quadrat.Ragged(array(values, kind, library), array(offsets, np.int64, library)), values


def moved(rows: Any, kind: str, trailing: Any, before: int) -> quadrat.Ragged:
    """A Ragged of tensors of any dtype, `before` values into them, with one more at the end."""
    made, _ = ragged([[7] * before, *rows, [7]], "pt", "int64", trailing)
    return quadrat.Ragged(made.values.to(getattr(torch, kind)), made.offsets[1:-1].clone())
