"""`quadrat.pad` and `quadrat.attention_mask`: ragged rows to one padded array, and where it has tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast, overload

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.ops import _device
from quadrat.ops._padding import Side, is_left, pad_here, padded_length, width_on_gpu
from quadrat.ragged import Ragged, source_of
from quadrat.ragged.offsets import Facts, offsets_of
from quadrat.support.arrays import Array, fill_value, is_array, require_own_dtype
from quadrat.support.kinds import INT64, Framework, framework_of, kind_of, torch_dtype
from quadrat.support.memory import address_of, empty
from quadrat.support.tensors import is_tensor, on_gpu, tracked

if TYPE_CHECKING:
    from torch import Tensor


class _MaskOptions(TypedDict, total=False):
    padding_side: Side
    max_length: int | None
    pad_to_multiple_of: int | None
    dtype: Any


class _PadOptions(_MaskOptions, total=False):
    padding_value: int | float | bool


@overload
def pad(rows: Ragged[Array], *, return_tensors: None = None, **options: Unpack[_PadOptions]) -> Array: ...
@overload
def pad(rows: Sequence[Tensor], *, return_tensors: None = None, **options: Unpack[_PadOptions]) -> Tensor: ...
@overload
def pad(rows: Ragged | Sequence[Any], *, return_tensors: Literal["pt"], **options: Unpack[_PadOptions]) -> Tensor: ...
@overload
def pad(rows: Any, *, return_tensors: Literal["np"] | None = None, **options: Unpack[_PadOptions]) -> NDArray[Any]: ...
def pad(
    rows: Ragged | Sequence[Any],
    *,
    padding_side: Side = "right",
    max_length: int | None = None,
    pad_to_multiple_of: int | None = None,
    padding_value: int | float | bool = 0,
    dtype: Any = None,
    return_tensors: Framework | None = None,
) -> Any:
    """Pad rows to one length.

    Args:
        rows: a `Ragged`, an Arrow array of lists, or a list of rows (lists, tuples, NumPy arrays, torch tensors) of one
            kind of number. Rows of more dimensions (arrays, tensors, lists of equally long lists) may differ in the
            first. Tensors on a GPU are padded on that GPU, on the current stream.
        padding_side: where the padding goes, "right" or "left".
        max_length: the padded length, in tokens; by default that of the longest row, for which the call waits on a GPU
            unless the offsets came from the CPU.
        pad_to_multiple_of: round the padded length up to a multiple of this.
        padding_value: the value of the padding; it must fit the dtype.
        dtype: the NumPy or torch dtype of the result, or "bfloat16"; by default that of the rows, int64 or float64 for
            Python numbers. Floats of 16 bits are rounded as torch rounds, which makes float32 of other numbers first.
        return_tensors: "np" or "pt"; by default that of the rows, "np" for Python lists, but "pt" for bfloat16, which
            NumPy lacks.

    Returns:
        `[rows, length, ...]`, a NumPy array or torch tensor; `...` are the trailing dimensions of the rows.

    Raises:
        TypeError: when a row does not hold numbers, or requires grad, or its numbers do not convert to `dtype` without
            loss.
        OverflowError: when a number or `padding_value` does not fit the dtype.
        ValueError: when a row is longer than `max_length`, or an option is unknown. On a GPU, longer rows are cut
            without an error, unless their lengths are already known on the CPU.

    Examples:
        >>> import quadrat
        >>> quadrat.pad([[5, 6, 7], [8]])
        array([[5, 6, 7],
               [8, 0, 0]])
        >>> rows = quadrat.Ragged.from_rows([[5, 6, 7], [8]], return_tensors="pt")
        >>> quadrat.pad(rows, padding_side="left", pad_to_multiple_of=4, padding_value=-1)
        tensor([[-1,  5,  6,  7],
                [-1, -1, -1,  8]])
    """
    if isinstance(rows, Ragged) and tracked(rows.values):
        from quadrat.ops.tokens import padded

        require_own_dtype(rows.values, dtype, return_tensors)
        width = padded_length(rows.facts.longest if max_length is None else (0, 0), max_length, pad_to_multiple_of)
        return padded(rows.values, rows.offsets, width, fill_value(padding_value, None), is_left(padding_side))
    return pad_here(rows, padding_side, (max_length, pad_to_multiple_of), padding_value, (dtype, return_tensors))


@overload
def attention_mask(rows: Ragged[Array], *, return_tensors: None = None, **options: Unpack[_MaskOptions]) -> Array: ...
@overload
def attention_mask(
    rows: Tensor | Sequence[Tensor], *, return_tensors: None = None, **options: Unpack[_MaskOptions]
) -> Tensor: ...
@overload
def attention_mask(rows: Any, *, return_tensors: Literal["pt"], **options: Unpack[_MaskOptions]) -> Tensor: ...
@overload
def attention_mask(
    rows: Any, *, return_tensors: Literal["np"] | None = None, **options: Unpack[_MaskOptions]
) -> NDArray[Any]: ...
def attention_mask(
    rows: Ragged | Sequence[Any] | Any,
    *,
    padding_side: Side = "right",
    max_length: int | None = None,
    pad_to_multiple_of: int | None = None,
    dtype: Any = None,
    return_tensors: Framework | None = None,
) -> Any:
    """Return the attention mask of the batch that `pad` makes with the same options: 1 for tokens, 0 for padding.

    Args:
        rows: a `Ragged`, a list of rows, or the lengths of the rows: a 1-D integer array or tensor, or a list of ints.
        padding_side, max_length, pad_to_multiple_of: as for `pad`.
        dtype: the dtype of the mask; by default int64.
        return_tensors: "np" or "pt"; by default that of `rows`, "np" for Python lists, but "pt" for bfloat16.

    Returns:
        `[rows, length]`, a NumPy array or torch tensor; on the GPU if the rows or lengths are there.

    Raises:
        TypeError: when `rows` are neither rows nor lengths.
        ValueError: when a row is longer than `max_length`, a length is negative, or an option is unknown. On a GPU,
            longer rows are cut without an error, unless their lengths are already known on the CPU.

    Examples:
        >>> import quadrat
        >>> quadrat.attention_mask([[5, 6, 7], [8]])
        array([[1, 1, 1],
               [1, 0, 0]])
        >>> quadrat.attention_mask([3, 1], padding_side="left", pad_to_multiple_of=4, return_tensors="pt")
        tensor([[0, 1, 1, 1],
                [0, 0, 0, 1]])
    """
    kind = INT64 if dtype is None else kind_of(dtype)
    ragged = _device.rows_on_gpu(rows)
    if ragged is None and on_gpu(rows):
        ragged = Ragged.of_lengths(cast("Any", rows), rows)
    if ragged is not None:
        if framework_of(return_tensors, "pt") == "np":
            raise ValueError("rows on a GPU become torch tensors, not NumPy arrays")
        width = width_on_gpu(ragged, max_length, pad_to_multiple_of)
        return _device.attention_mask(ragged.offsets, width, torch_dtype(kind), left=is_left(padding_side))
    offsets, facts, default = _offsets(rows)
    framework, count, columns = framework_of(return_tensors, default, kind), len(offsets) - 1, _core.Columns()
    columns.add_ragged(0, INT64, facts.last, address_of(offsets), count)
    width = padded_length(facts.longest, max_length, pad_to_multiple_of)
    out, address = empty(framework, (count, width), kind)
    columns.attention_mask(0, address, kind, width, is_left(padding_side))
    return out


def _offsets(rows: Any) -> tuple[NDArray[np.int64], Facts, Framework]:
    """Offsets of the rows, what is known of them, and the library the rows are of."""
    if isinstance(rows, Ragged):
        return *rows._checked(), "pt" if is_tensor(rows.values) else "np"
    if is_array(rows) or (rows and all(type(row) is int for row in rows)):
        return *offsets_of(rows), "pt" if is_tensor(rows) else "np"
    source = source_of(rows)
    return *offsets_of(source.lengths), source.framework
