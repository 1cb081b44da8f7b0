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
# Floats that float16 holds, too: NumPy warns of others.
FLOATS = st.floats(-65000, 65000, width=32) | st.sampled_from([float("inf"), float("-inf"), float("nan")])
NUMBERS = {int: st.integers(0, 100), float: FLOATS, bool: st.booleans()}


def array(values: Any, dtype: Any, library: str) -> Any:
    result = np.array(values, dtype)
    return torch.from_numpy(result) if library == "pt" else result


def ragged(rows: Any, library: str = "np", kind: str = "int64", trailing: Any = ()) -> Any:
    total = sum(map(len, rows))
    flat = np.array([number for row in rows for number in row], np.int64).reshape(total, *[1] * len(trailing))
    values = np.broadcast_to(flat, (total, *trailing)).astype(kind)
    offsets = np.cumsum([0, *map(len, rows)])
    return quadrat.Ragged(array(values, kind, library), array(offsets, np.int64, library)), values


def moved(rows: Any, kind: str, trailing: Any, before: int) -> quadrat.Ragged:
    """A Ragged of tensors of any dtype, `before` values into them, with one more at the end."""
    source, _ = ragged([[7] * before, *rows, [7]], "pt", "int64", trailing)
    return quadrat.Ragged(source.values.to(getattr(torch, kind)), source.offsets[1:-1].clone())


def dtypes_for(number: type, kind: str | None = None) -> list[str]:
    """The dtypes that hold the numbers of this Python type, and to which those of a dtype are converted.

    No float becomes an integer, and only a bool a bool.
    """
    held = [name for name in KINDS if (name != "bool" or number is bool) and (number is not float or "float" in name)]
    return [
        name
        for name in held
        if kind in (None, name) or (name != "bool" and ("float" in name or "float" not in str(kind)))
    ]


@st.composite
def rows_of_a_form(draw: Any) -> tuple[Any, list[Any], type, str, str]:
    """Rows of one form, the arrays they are, the type of the numbers in them, and the dtype and library they have."""
    number = draw(st.sampled_from(list(NUMBERS)))
    rows = draw(st.lists(st.lists(NUMBERS[number], max_size=20), max_size=8))
    form = draw(st.sampled_from(["list", "tuple", "np", "pt", "Ragged np", "Ragged pt"]))
    plain = {int: "int64", float: "float64", bool: "bool"}[number]
    kind = plain if form in ("list", "tuple") else draw(st.sampled_from(dtypes_for(number)))
    arrays = [np.array(row, kind) for row in rows]
    if form in ("list", "tuple"):
        result = [list(row) if form == "list" else tuple(row) for row in rows]
    elif form.startswith("Ragged"):
        values, offsets = np.concatenate([*arrays, np.empty(0, kind)]), np.cumsum([0, *map(len, rows)])
        result = quadrat.Ragged(*(array(part, part.dtype, form[-2:]) for part in (values, offsets)))
    else:
        result = [torch.from_numpy(row) if form == "pt" else row for row in arrays]
    if not form.startswith("Ragged") and not any(rows):
        kind = "int64"  # rows without numbers have no kind
    tensors = form == "Ragged pt" or (form == "pt" and len(rows) > 0)
    return result, arrays, number, kind, "pt" if tensors else "np"
