"""`quadrat.pad`: ragged rows to one padded array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from numpy.typing import NDArray

from quadrat.ops._padding import Side, is_left, pad_here, padded_length
from quadrat.ops._tracked import operators, tracked
from quadrat.ragged import Ragged
from quadrat.support.arrays import Array, fill_value, require_own_dtype
from quadrat.support.kinds import Framework

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Unpack

    from quadrat.ops._padding import PadOptions


@overload
def pad(rows: Ragged[Array], *, return_tensors: None = None, **options: Unpack[PadOptions]) -> Array: ...
@overload
def pad(rows: Sequence[Tensor], *, return_tensors: None = None, **options: Unpack[PadOptions]) -> Tensor: ...
@overload
def pad(rows: Ragged | Sequence[Any], *, return_tensors: Literal["pt"], **options: Unpack[PadOptions]) -> Tensor: ...
@overload
def pad(rows: Any, *, return_tensors: Literal["np"] | None = None, **options: Unpack[PadOptions]) -> NDArray[Any]: ...
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
        return_tensors: "np" or "pt"; by default that of the rows, "np" for Python lists.

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
        # The operator has a derivative, and torch.compile can trace it.
        require_own_dtype(rows.values, dtype, return_tensors)
        width = padded_length(rows.facts.longest if max_length is None else (0, 0), max_length, pad_to_multiple_of)
        return operators().pad(rows.values, rows.offsets, width, fill_value(padding_value, None), is_left(padding_side))
    return pad_here(rows, padding_side, (max_length, pad_to_multiple_of), padding_value, (dtype, return_tensors))
