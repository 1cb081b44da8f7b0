"""`quadrat.pad`: ragged rows to one padded array."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from quadrat.ops._device import bits_of_padding, rows_on_gpu
from quadrat.ops._device import pad as device_pad
from quadrat.ragged import Ragged, source_of
from quadrat.support.arrays import carried, carrier_of
from quadrat.support.memory import (
    BOOL,
    FLOAT32,
    KINDS,
    WIDEST,
    Framework,
    compiling,
    empty,
    framework_of,
    is_tensor,
    kind_of,
)

Side = Literal["right", "left"]
_BEYOND_FLOAT32 = 2.0**128 - 2.0**103  # from here on numbers round to infinity


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
        rows: a `Ragged`, or a list of rows (lists, tuples, 1-D NumPy arrays, 1-D torch tensors) of one kind of number.
            Tensors may be on a GPU, and then are padded there, on the current stream.
        side: where the padding goes, "right" or "left".
        length: the padded length, in tokens; by default that of the longest row. On a GPU, finding that out means to
            wait for the offsets, unless they came from the CPU.
        multiple_of: round the padded length up to a multiple of this.
        padding_value: what fills the gaps; it must fit the dtype.
        dtype: of the result, NumPy's or torch's; by default that of the rows, int64 or float64 for Python numbers.
        return_tensors: "np" or "pt"; by default that of the rows, "np" for Python lists.

    Returns:
        `[rows, length, ...]`, a NumPy array or torch tensor; `...` are the trailing dimensions of a `Ragged`.

    Raises:
        TypeError: when a row is no row of numbers, or its kind does not convert to `dtype` without loss.
        OverflowError: when a number or `padding_value` does not fit the dtype.
        ValueError: when a row is longer than `length`, or an option is unknown. On a GPU longer rows are cut, unless it
            is known without waiting how long they are.
    """
    if isinstance(rows, Ragged) and tracked(rows.values):
        # The operator knows its derivative, and torch.compile the operator.
        require_own_dtype(rows, dtype, return_tensors)
        width = padded_length(rows.facts.longest if length is None else (0, 0), length, multiple_of)
        return operators().pad(rows.values, rows.offsets, width, fill_value(padding_value, None), is_left(side))
    return pad_here(
        rows,
        side=side,
        length=length,
        multiple_of=multiple_of,
        padding_value=padding_value,
        dtype=dtype,
        return_tensors=return_tensors,
    )


def pad_here(
    rows: Ragged | Sequence[Any],
    *,
    side: str = "right",
    length: int | None = None,
    multiple_of: int | None = None,
    padding_value: int | float | bool = 0,
    dtype: Any = None,
    return_tensors: Framework | None = None,
) -> Any:
    """`pad` without a gradient: see there."""
    if (ragged := rows_on_gpu(rows)) is not None:
        require_own_dtype(ragged, dtype, return_tensors)
        known = length is None or ragged._facts is not None
        width = padded_length(ragged.facts.longest if known else (0, 0), length, multiple_of)
        fill = bits_of_padding(fill_value(padding_value, None), ragged.values)
        return device_pad(ragged.values, ragged.offsets, width, left=is_left(side), fill=fill)
    if isinstance(rows, Ragged) and (carrier := carrier_of(rows.values)) is not None:
        require_own_dtype(rows, dtype, return_tensors)
        stand_in = Ragged(rows.values.view(carrier), rows.offsets)
        fill = carried(fill_value(padding_value, None), rows.values)
        out = pad_here(stand_in, side=side, length=length, multiple_of=multiple_of, padding_value=fill)
        return out.view(rows.values.dtype)
    source = source_of(rows)
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


def tracked(array: Any) -> bool:
    """Whether torch keeps track of what is done to an array, for its gradient or to compile it."""
    if not is_tensor(array) or not (array.requires_grad or compiling()):
        return False
    import torch

    return compiling() or torch.is_grad_enabled()


def operators() -> Any:
    """`torch.ops.quadrat`, registered. Raises ImportError for a torch that is too old."""
    import torch

    import quadrat.ops.library  # noqa: F401 - registers them

    return torch.ops.quadrat


def require_own_dtype(rows: Ragged, dtype: Any, return_tensors: Framework | None) -> None:
    """Checks that nothing is to be converted. Raises TypeError and ValueError."""
    if dtype is not None and dtype != rows.values.dtype:
        raise TypeError(
            f"{rows.values.dtype} on {getattr(rows.values, 'device', 'the CPU')} is not converted to {dtype}: convert "
            "the values first"
        )
    own: Framework = "pt" if is_tensor(rows.values) else "np"
    if framework_of(return_tensors, own) != own:
        raise ValueError(f"{type(rows.values).__name__}s of {rows.values.dtype} stay in their library")


def fill_value(value: Any, kind: int | None) -> Any:
    """The padding value as a plain Python number; 0 and 1 serve as bools too. Raises TypeError and OverflowError."""
    if isinstance(value, (bool, np.bool_)) or (kind == BOOL and value in (0, 1)):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        if kind == FLOAT32 and math.isfinite(number) and abs(number) >= _BEYOND_FLOAT32:
            raise OverflowError(f"padding_value={value!r} does not fit the dtype float32")
        return number
    raise TypeError(f"padding_value must be a number, not {value!r}")


def padded_length(longest: tuple[int, int], length: int | None, multiple_of: int | None) -> int:
    """The padded length, in tokens, that the options ask for; `longest` is a row and its length.

    Raises TypeError and ValueError.
    """
    row, tokens = longest
    width = tokens if length is None else whole(length, "length")
    if multiple_of is not None:
        multiple_of = whole(multiple_of, "multiple_of")
        if multiple_of <= 0:
            raise ValueError(f"multiple_of must be positive, not {multiple_of}")
        width = -(-width // multiple_of) * multiple_of
    if width < tokens:
        raise ValueError(f"length={length} is below the longest row: row {row} has {tokens} tokens")
    if width > WIDEST:
        raise ValueError(f"no memory holds rows of {width} tokens: length is {length}, multiple_of {multiple_of}")
    return width


def whole(value: Any, name: str) -> int:
    """A number of tokens, or what else is counted, as an int. Raises TypeError for others, floats among them."""
    if isinstance(value, int):
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {value!r}") from None


def is_left(side: str) -> bool:
    """Whether padding goes to the left. Raises ValueError for an unknown side."""
    if side not in ("right", "left"):
        raise ValueError(f"side must be 'right' or 'left', not {side!r}")
    return side == "left"
