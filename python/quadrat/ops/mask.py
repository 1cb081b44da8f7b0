"""`quadrat.attention_mask`: where a padded batch has tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.ops import _device
from quadrat.ops._padding import Side, is_left, padded_length
from quadrat.ragged import Ragged, source_of
from quadrat.ragged.offsets import Facts, offsets_of
from quadrat.support import tensors
from quadrat.support.arrays import Array
from quadrat.support.kinds import INT64, Framework, framework_of, kind_of, torch_dtype
from quadrat.support.memory import address_of, empty
from quadrat.support.tensors import is_tensor

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Unpack

    from quadrat.ops._padding import MaskOptions


@overload
def attention_mask(rows: Ragged[Array], *, return_tensors: None = None, **options: Unpack[MaskOptions]) -> Array: ...
@overload
def attention_mask(
    rows: Tensor | Sequence[Tensor], *, return_tensors: None = None, **options: Unpack[MaskOptions]
) -> Tensor: ...
@overload
def attention_mask(rows: Any, *, return_tensors: Literal["pt"], **options: Unpack[MaskOptions]) -> Tensor: ...
@overload
def attention_mask(
    rows: Any, *, return_tensors: Literal["np"] | None = None, **options: Unpack[MaskOptions]
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
        return_tensors: "np" or "pt"; by default that of `rows`, "np" for Python lists.

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
    ragged, lengths = _device.rows_on_gpu(rows), cast("Any", rows)
    if ragged is None and tensors.on_gpu(rows):
        if lengths.dim() != 1 or lengths.dtype.is_floating_point:
            shape = tuple(lengths.shape)
            raise TypeError(f"lengths must be integers, one per row, not {lengths.dtype} of shape {shape}")
        ragged = Ragged.of_lengths(lengths, lengths)
    if ragged is not None:
        if framework_of(return_tensors, "pt") == "np":
            raise ValueError("rows on a GPU become torch tensors, not NumPy arrays")
        known = max_length is None or ragged._facts is not None
        width = padded_length(ragged.facts.longest if known else (0, 0), max_length, pad_to_multiple_of)
        return _device.attention_mask(ragged.offsets, width, torch_dtype(kind), left=is_left(padding_side))
    offsets, facts, default = _offsets(rows)
    framework, count, columns = framework_of(return_tensors, default), len(offsets) - 1, _core.Columns()
    columns.add_ragged(0, INT64, facts.last, address_of(offsets), count)
    width = padded_length(facts.longest, max_length, pad_to_multiple_of)
    out, address = empty(framework, (count, width), kind)
    columns.attention_mask(0, address, kind, width, is_left(padding_side))
    return out


def _offsets(rows: Any) -> tuple[NDArray[np.int64], Facts, Framework]:
    """Offsets of the rows, what is known of them, and the library the rows are of."""
    if isinstance(rows, Ragged):
        return *rows._checked(), "pt" if is_tensor(rows.values) else "np"
    if isinstance(rows, np.ndarray) or is_tensor(rows):
        return *offsets_of(rows), "pt" if is_tensor(rows) else "np"
    if rows and all(type(row) is int for row in rows):
        return *offsets_of(np.array(rows, np.int64)), "np"
    source = source_of(rows)
    return *offsets_of(source.lengths), source.framework
