"""Padding and unpadding of rows, without a gradient, and the options that the functions share."""

import operator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.ops import _device
from quadrat.ragged import Ragged, source_of
from quadrat.ragged.offsets import checked_offsets
from quadrat.ragged.source import RowSource, raise_failure
from quadrat.support import tensors
from quadrat.support.arrays import bytes_per_token, carried, dense, fill_value, require_own_dtype, room_like
from quadrat.support.columns import explain
from quadrat.support.kinds import KINDS, WIDEST, Framework
from quadrat.support.memory import address_of, empty

Side = Literal["right", "left"]
Output = tuple[Any, Framework | None]  # `dtype` and `return_tensors`
AS_ROWS: Output = None, None


def pad_here(
    rows: Any, padding_side: str, sizes: tuple[int | None, int | None], padding_value: Any, output: Output = AS_ROWS
) -> Any:
    """`pad` without a gradient. sizes: `max_length` and `pad_to_multiple_of`."""
    if (ragged := _device.rows_on_gpu(rows)) is not None:
        require_own_dtype(ragged.values, *output)
        width, left = width_on_gpu(ragged, *sizes), is_left(padding_side)
        return _device.pad(ragged.values, ragged.offsets, width, left=left, padding_value=padding_value)
    source = source_of(rows)
    framework, kind, fill = output_of(source, output, padding_value)
    width = padded_length(source.longest, *sizes)
    out, address = empty(framework, (len(source), width, *source.trailing), kind)
    if (failure := source.columns.pad(0, address, kind, width, is_left(padding_side), fill)) is not None:
        if failure[1] < 0:
            raise OverflowError(f"padding_value={padding_value!r} does not fit the dtype {KINDS[kind]}")
        raise_failure(failure)
    return out if source.carried is None else out.view(source.carried.dtype)


def output_of(source: RowSource, output: Output, padding_value: Any) -> tuple[Framework, int, Any]:
    """The library and the kind of the output, and what fills its gaps. Raises TypeError, OverflowError, ValueError."""
    framework, kind = source.output(*output)
    as_integers = source.carried is not None
    return framework, kind, carried(padding_value, source.carried) if as_integers else fill_value(padding_value, kind)


def unpad_here(padded: Any, offsets: Any, total: int, left: bool = False) -> Any:
    """`unpad` without a gradient; on the CPU it raises ValueError when a row is longer than the width."""
    if tensors.on_gpu(padded):
        return _device.unpad(padded, offsets, total, left=left)
    return copied(padded, checked_offsets(offsets, total)[0], total, left)


def copied(padded: Any, bounds: NDArray[np.int64], total: int, left: bool) -> Any:
    """The `total` values. Raises ValueError."""
    source = dense(padded, "padded")
    rows, width, *trailing = source.shape
    if len(bounds) != rows + 1:
        raise ValueError(f"there are {rows} rows and {len(bounds)} offsets: there must be one more offset than rows")
    values, address = room_like(source, (total, *trailing))
    token = bytes_per_token(source, 2)
    place = address_of(source), width, left, (address_of(bounds), rows + 1), token, address, total
    if (failure := _core.unpad(*place)) is not None:
        raise ValueError(explain(failure))
    return values


def width_on_gpu(rows: Ragged, max_length: int | None, pad_to_multiple_of: int | None) -> int:
    """The padded length; nothing waits for the longest row where `max_length` is given."""
    known = max_length is None or rows._facts is not None
    return padded_length(rows.facts.longest if known else (0, 0), max_length, pad_to_multiple_of)


def padded_length(longest: tuple[int, int], max_length: int | None, pad_to_multiple_of: int | None) -> int:
    """The padded length, in tokens; `longest` is a row and its length. Raises TypeError and ValueError."""
    row, tokens = longest
    width = tokens if max_length is None else as_int(max_length, "max_length")
    if pad_to_multiple_of is not None:
        pad_to_multiple_of = as_int(pad_to_multiple_of, "pad_to_multiple_of")
        if pad_to_multiple_of <= 0:
            raise ValueError(f"pad_to_multiple_of must be positive, not {pad_to_multiple_of}")
        width = -(-width // pad_to_multiple_of) * pad_to_multiple_of
    if width < tokens:
        raise ValueError(f"max_length={max_length} is below the longest row: row {row} has {tokens} tokens")
    if width > WIDEST:
        asked = f"max_length is {max_length}, pad_to_multiple_of {pad_to_multiple_of}"
        raise ValueError(f"no memory holds rows of {width} tokens: {asked}")
    return width


def as_int(value: Any, name: str) -> int:
    """An integer as an int. Raises TypeError for others, bools and floats among them."""
    try:
        if not isinstance(value, bool):
            return value if isinstance(value, int) else operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"{name} must be an int, not {value!r}")


def is_left(side: str) -> bool:
    if side not in ("right", "left"):
        raise ValueError(f"padding_side must be 'right' or 'left', not {side!r}")
    return side == "left"
