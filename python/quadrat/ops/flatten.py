"""`quadrat.flatten`: ragged rows to one flat array, with what tells the rows apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from quadrat import _core
from quadrat.input.columns import OUT_OF_RANGE
from quadrat.ops._device import flatten as device_flatten
from quadrat.ops._device import rows_on_gpu
from quadrat.ops._rows import output_of, padded_length, require_own_dtype, whole
from quadrat.ragged import Ragged, source_of
from quadrat.support.memory import INT32, INT64, KINDS, Framework, address_of, empty


class Flattened(NamedTuple):
    """Rows one after the other, as attention without padding takes them; NumPy arrays or torch tensors.

    Attributes:
        values: `[total, ...]`, the rows' numbers.
        position_ids: `[total]` int64, where in its row each token stands.
        seq_idx: `[total]` int32, which row each token belongs to; -1 in the padding.
        cu_seqlens: `[rows + 1]` int32, where each row begins, and where the last one ends.
        max_length: the length of the longest row, in tokens.
    """

    values: Any
    position_ids: Any
    seq_idx: Any
    cu_seqlens: Any
    max_length: int


def flatten(
    rows: Ragged | Sequence[Any],
    *,
    position_ids_start: int = 0,
    multiple_of: int | None = None,
    padding_value: int | float | bool = 0,
    dtype: Any = None,
    return_tensors: Framework | None = None,
) -> Flattened:
    """Join rows to one sequence, and say where they begin.

    Args:
        rows: a `Ragged`, or a list of rows (lists, tuples, 1-D NumPy arrays, 1-D torch tensors) of one kind of number.
            Tensors may be on a GPU; that waits for the offsets of a `Ragged`, unless they came from the CPU.
        position_ids_start: the position of the first token of each row.
        multiple_of: round the total, in tokens, up to a multiple of this. The padding comes last and belongs to no row:
            `seq_idx` is -1 there, `cu_seqlens` and `max_length` leave it out. `position_ids` go on counting from the
            last token, so that code that finds rows where positions restart does not find one more.
        padding_value: what fills the padding of the values; it must fit the dtype.
        dtype: of the values, NumPy's or torch's; by default that of the rows, int64 or float64 for Python numbers.
        return_tensors: "np" or "pt"; by default that of the rows, "np" for Python lists.

    Returns:
        A `Flattened`: values, position_ids, seq_idx, cu_seqlens, max_length.

    Raises:
        TypeError: when a row does not hold numbers, or its kind does not convert to `dtype` without loss.
        OverflowError: when a number or `padding_value` does not fit the dtype, a position int64, the total int32.
        ValueError: when an option is unknown.
    """
    if (ragged := rows_on_gpu(rows)) is not None:
        require_own_dtype(ragged.values, dtype, return_tensors)
        return _flatten_on_gpu(ragged, position_ids_start, multiple_of, padding_value)
    return flatten_here(
        rows,
        None,
        position_ids_start=position_ids_start,
        multiple_of=multiple_of,
        padding_value=padding_value,
        dtype=dtype,
        return_tensors=return_tensors,
    )


def flatten_here(
    rows: Ragged | Sequence[Any],
    total: int | None,
    *,
    position_ids_start: int = 0,
    multiple_of: int | None = None,
    padding_value: int | float | bool = 0,
    dtype: Any = None,
    return_tensors: Framework | None = None,
) -> Flattened:
    """`flatten` on the CPU: see there. total: in tokens, padding included, in place of `multiple_of`."""
    source = source_of(rows)
    framework, kind, fill = output_of(source, dtype, return_tensors, padding_value)
    tokens = int(source.lengths.sum())
    if total is None:
        total = padded_length((0, tokens), None, multiple_of)
    elif total < tokens:
        raise ValueError(f"total={total} is below the {tokens} tokens of the rows")
    elif total > tokens == 0:
        raise ValueError(f"total={total}, where there is no token: position_ids have nothing to go on from")
    _require_int64(position_ids_start)
    values, address = empty(framework, (total, *source.trailing), kind)
    source.require(source.columns.flatten(0, address, kind, source.total))
    if _core.fill_tail(address, kind, source.total, total * source.inner, fill) is not None:
        raise OverflowError(f"padding_value={padding_value!r} does not fit the dtype {KINDS[kind]}")
    values = values if source.own is None else values.view(source.own.dtype)
    lengths, count = address_of(source.lengths), len(source)
    position_ids, address = empty(framework, (total,), INT64)
    if _core.position_ids(lengths, count, position_ids_start, address, total) is not None:
        raise OverflowError(f"position_ids_start={position_ids_start} leads to positions beyond int64")
    seq_idx, address = empty(framework, (total,), INT32)
    source.require(_core.seq_idx(lengths, count, address, total))
    cu_seqlens, address = empty(framework, (count + 1,), INT32)
    failure = _core.cu_seqlens(lengths, count, INT32, address)
    if failure is not None and failure[0] == OUT_OF_RANGE:
        raise OverflowError(f"{tokens} tokens are more than the int32 cu_seqlens count")
    return Flattened(values, position_ids, seq_idx, cu_seqlens, source.longest[1])


def _require_int64(start: int) -> None:
    if not -(2**63) <= whole(start, "position_ids_start") < 2**63:
        raise OverflowError(f"position_ids_start={start} is beyond int64")


def _flatten_on_gpu(ragged: Ragged, start: int, multiple_of: int | None, padding_value: Any) -> Flattened:
    first, last, (_, longest) = ragged.facts
    total = padded_length((0, last - first), None, multiple_of)
    _require_int64(start)
    if start + total - 1 >= 2**63:
        raise OverflowError(f"position_ids_start={start} leads to positions beyond int64")
    if last - first >= 2**31:
        raise OverflowError(f"{last - first} tokens are more than the int32 cu_seqlens count")
    made = device_flatten(ragged.values, ragged.offsets, total, start=start, padding_value=padding_value)
    return Flattened(*made, longest)
