"""`quadrat.pad`: ragged rows to one padded array."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from quadrat._memory import BOOL, KINDS, Framework, empty, framework_of, kind_of
from quadrat.ragged import Ragged, RowSource

Side = Literal["right", "left"]


def pad(
    rows: Ragged | Sequence[Any],
    *,
    side: Side = "right",
    length: int | None = None,
    multiple_of: int | None = None,
    padding_value: int | float | bool = 0,
    dtype: Any = None,
    return_tensors: Framework | None = None,
) -> Any:
    """Pad rows to one length.

    Args:
        rows: a `Ragged`, or a list of rows (lists, tuples, 1-D NumPy arrays, 1-D CPU torch tensors) of one kind of
            number.
        side: where the padding goes, "right" or "left".
        length: the padded length, in tokens; by default that of the longest row.
        multiple_of: round the padded length up to a multiple of this.
        padding_value: what fills the gaps; it must fit the dtype.
        dtype: of the result, NumPy's or torch's; by default that of the rows, int64 or float64 for Python numbers.
        return_tensors: "np" or "pt"; by default that of the rows, "np" for Python lists.

    Returns:
        `[rows, length, ...]`, a NumPy array or CPU torch tensor; `...` are the trailing dimensions of a `Ragged`.

    Raises:
        TypeError: when a row is no row of numbers, or its kind does not convert to `dtype` without loss.
        OverflowError: when a number or `padding_value` does not fit the dtype.
        ValueError: when a row is longer than `length`, or an option is unknown.
    """
    source = RowSource.of(rows)
    framework = framework_of(return_tensors, source.framework)
    kind = source.kind if dtype is None else kind_of(dtype)
    width = padded_length(source.longest, length, multiple_of)
    left = is_left(side)
    value = fill_value(padding_value, kind)
    out, address = empty(framework, (len(source), width, *source.trailing), kind)
    failure = source.columns.pad(0, address, kind, width * source.inner, left, value)
    if failure is not None and failure[1] < 0:
        raise OverflowError(f"padding_value={padding_value!r} does not fit the dtype {KINDS[kind]}")
    source.require(failure)
    return out


def fill_value(value: Any, kind: int) -> Any:
    """The padding value as a plain Python number; 0 and 1 serve as bools too."""
    if isinstance(value, (bool, np.bool_)) or (kind == BOOL and value in (0, 1)):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(f"padding_value must be a number, not {value!r}")


def padded_length(longest: tuple[int, int], length: int | None, multiple_of: int | None) -> int:
    """The padded length, in tokens, that the options ask for; `longest` is a row and its length. Raises ValueError."""
    row, tokens = longest
    width = tokens if length is None else length
    if multiple_of is not None:
        if multiple_of <= 0:
            raise ValueError(f"multiple_of must be positive, not {multiple_of}")
        width = -(-width // multiple_of) * multiple_of
    if width < tokens:
        raise ValueError(f"length={length} is below the longest row: row {row} has {tokens} tokens")
    return width


def is_left(side: str) -> bool:
    """Whether padding goes to the left. Raises ValueError for an unknown side."""
    if side not in ("right", "left"):
        raise ValueError(f"side must be 'right' or 'left', not {side!r}")
    return side == "left"
