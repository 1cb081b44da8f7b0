"""`Ragged`: rows of different lengths, stored flat."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat._names import load
from quadrat.ragged.display import as_html, as_numbers, as_text
from quadrat.ragged.offsets import Facts, checked_offsets, offsets_like, require_offsets, tensor_or_array
from quadrat.ragged.source import RowSource
from quadrat.ragged.take import take
from quadrat.support.arrays import Array, IntArray, as_numpy, carrier_of, dense, require_plain
from quadrat.support.extras import needs
from quadrat.support.kinds import NUMPY_KINDS, Framework, kind_of
from quadrat.support.memory import address_of
from quadrat.support.tensors import is_tensor, on_gpu, recording

if TYPE_CHECKING:
    import pyarrow
    import torch

    from quadrat.support.arrays import SameArray


class Ragged(Generic[Array]):
    """Rows of different lengths as flat values and offsets, the layout of Arrow lists and of `cu_seqlens`.

    Row `i` is `values[offsets[i]:offsets[i + 1]]`. Neither array is copied: other code may change their numbers, so
    that on the CPU, offsets are checked again whenever rows are read.

    Args:
        values: NumPy array or torch tensor, `[total, ...]`.
        offsets: `[rows + 1]` integers of the same library and on the same device, not decreasing, each from 0 to
            `total`. They are not checked on a GPU, because that would wait for it: rows outside the values are cut.

    Raises:
        TypeError: when `values` and `offsets` are not arrays of one library, a dtype is not supported, or a tensor has
            no numbers in memory (sparse or fake tensors, for example).
        ValueError: when `offsets` decrease, are empty, or run past the values, or the devices differ.

    Examples:
        >>> import numpy, quadrat
        >>> rows = quadrat.Ragged(numpy.array([5, 6, 7, 8]), numpy.array([0, 3, 4]))
        >>> len(rows), rows.lengths.tolist(), rows.to_lists()
        (2, [3, 1], [[5, 6, 7], [8]])
        >>> rows[0], rows[[1, 0]].to_lists()
        (array([5, 6, 7]), [[8], [5, 6, 7]])
        >>> quadrat.Ragged.from_rows([[5, 6, 7], [8]], return_tensors="pt").to_padded()
        tensor([[5, 6, 7],
                [8, 0, 0]])
    """

    __slots__ = ("_facts", "_offsets", "_values")

    _values: Any
    _offsets: Any

    @overload
    def __init__(self: Ragged[NDArray[Any]], values: NDArray[Any], offsets: NDArray[Any]) -> None: ...
    @overload
    def __init__(self: Ragged[torch.Tensor], values: torch.Tensor, offsets: torch.Tensor) -> None: ...
    def __init__(self, values: Any, offsets: Any) -> None:
        tensors = is_tensor(values) and is_tensor(offsets)
        if not (tensors or (isinstance(values, np.ndarray) and isinstance(offsets, np.ndarray))):
            raise TypeError(
                f"values and offsets must both be NumPy arrays or both torch tensors, not {type(values).__name__} "
                f"and {type(offsets).__name__}"
            )
        if tensors and not (values.device == offsets.device and values.device.type in ("cpu", "cuda")):
            raise ValueError(
                f"values are on {values.device}, offsets on {offsets.device}; both must be on the CPU or on one GPU"
            )
        self._values, self._offsets = values, offsets
        self._facts: Facts | None = None  # of a GPU, where finding them out means to wait
        require_plain(values, "values")
        require_plain(offsets, "offsets")
        if not (traced := recording()):
            carrier_of(values.dtype)
        if values.ndim < 1:
            raise ValueError("values must have at least one dimension")
        if on_gpu(offsets) and not traced:
            require_offsets(offsets)
        elif not traced:
            self._checked()

    @overload
    @classmethod
    def from_rows(
        cls, rows: Sequence[Any], *, dtype: Any = None, return_tensors: Literal["pt"]
    ) -> Ragged[torch.Tensor]: ...
    @overload
    @classmethod
    def from_rows(
        cls, rows: Sequence[torch.Tensor], *, dtype: Any = None, return_tensors: None = None
    ) -> Ragged[torch.Tensor]: ...
    @overload
    @classmethod
    def from_rows(
        cls, rows: Sequence[Any], *, dtype: Any = None, return_tensors: Literal["np"] | None = None
    ) -> Ragged[NDArray[Any]]: ...
    @classmethod
    def from_rows(
        cls, rows: Sequence[Any], *, dtype: Any = None, return_tensors: Framework | None = None
    ) -> Ragged[Any]:
        """Copy rows (a list of lists, tuples, NumPy arrays or torch tensors, or an Arrow array) into one `Ragged`.

        Args:
            rows: the rows; numbers of one kind. Of more dimensions, only the first may differ; the others trail.
            dtype: of the values; by default that of the rows, int64 or float64 for Python numbers.
            return_tensors: "np" or "pt"; by default that of the first row, "np" for lists, but "pt" for bfloat16.

        Raises:
            TypeError: when a row does not hold numbers, or the rows hold different kinds.
            OverflowError: when a number does not fit the dtype.
        """
        return cls.known(*RowSource.of(rows).joined(dtype, return_tensors))

    @classmethod
    def of_lengths(cls, values: SameArray, lengths: Any) -> Ragged[SameArray]:
        """Rows of these lengths, one after the other in `values`; `lengths` are integers on any device."""
        offsets, facts = offsets_like(values, lengths)
        rows: Any = Ragged(values, offsets)
        rows._facts = facts
        return rows  # type: ignore[no-any-return]

    @classmethod
    def known(cls, values: Array, offsets: Array, facts: Facts | None) -> Ragged[Array]:
        """Values and offsets that were made here and need no check."""
        rows = object.__new__(cls)
        rows._values, rows._offsets, rows._facts = values, offsets, facts
        return rows

    @property
    def values(self) -> Array:
        """`[total, ...]`; it cannot be replaced: make another `Ragged`."""
        return self._values  # type: ignore[no-any-return]

    @property
    def offsets(self) -> Array:
        """`[rows + 1]`; it cannot be replaced: make another `Ragged`."""
        return self._offsets  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._values, self._offsets)  # copies and pickles are checked when they are made

    def _checked(self) -> tuple[IntArray, Facts]:
        """As `checked_offsets`: all that reads rows on the CPU comes through here, once."""
        return checked_offsets(self._offsets, len(self._values))

    def to(self, device: Any, *, non_blocking: bool = False) -> Ragged[torch.Tensor]:
        """The same rows as tensors on `device`; arrays that are already there are not copied."""
        values, offsets = self._values, self._offsets
        if not is_tensor(values):
            with needs("Ragged.to"):
                import torch

            values, offsets = torch.from_numpy(values), torch.from_numpy(offsets)
        facts = self._facts if on_gpu(offsets) else self.facts
        offsets = offsets.to(device, non_blocking=non_blocking and not offsets.is_cuda)
        moved = Ragged(values.to(device, non_blocking=non_blocking), offsets)
        moved._facts = facts
        return moved

    @property
    def facts(self) -> Facts:
        """Bounds and longest row. On a GPU this waits once for the offsets, unless they came from the CPU."""
        if not on_gpu(self._offsets):
            return self._checked()[1]
        if self._facts is None:
            import torch

            lengths: Any = self.lengths if len(self) else self._offsets.new_zeros(1)
            row = lengths.argmax()
            first, last, *longest = torch.stack([self._offsets[0], self._offsets[-1], row, lengths[row]]).tolist()
            self._facts = Facts(first, last, (longest[0], longest[1]))
        return self._facts

    @property
    def lengths(self) -> Array:
        """`[rows]` lengths, in tokens, int64."""
        if on_gpu(self._offsets):
            return (self._offsets[1:] - self._offsets[:-1]).long()  # type: ignore[no-any-return]
        return tensor_or_array(np.diff(self._checked()[0]), self._offsets)  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Array: ...
    @overload
    def __getitem__(self, index: Any) -> Ragged[Array]: ...
    def __getitem__(self, index: Any) -> Any:
        """One row, or several.

        Args:
            index: a number, counted from the end if negative; a slice; or a list, range, array or tensor of `[n]`
                numbers or of `[rows]` booleans.

        Returns:
            For a number, the row as a view of the values, `[length, ...]`. For a slice without a step, a `Ragged` over
            the same values. For everything else, a `Ragged` of copies of those rows, in the library of the values and
            on their device, with a gradient if the values have one. On a GPU this waits once.

        Raises:
            IndexError: when there is no such row, or the booleans are not one per row.
            TypeError: when `index` is none of these.
            ValueError: when the offsets were changed, and a row is outside the values. On a GPU it is cut.
        """
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return Ragged(self._values, self._offsets[start : max(start, stop) + 1])
            index = range(start, stop, step)
        if isinstance(index, (list, range)) or getattr(index, "ndim", 0) > 0:
            bounds = None if on_gpu(self._values) else self._checked()[0]
            return Ragged.known(*take(self._values, self._offsets, bounds, index))
        row = operator.index(index)
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        row %= len(self)
        require_plain(self._offsets, "offsets")
        first, last, total = int(self._offsets[row]), int(self._offsets[row + 1]), len(self._values)
        if not 0 <= first <= last <= total and not on_gpu(self._offsets):
            raise ValueError(f"row {row} runs from {first} to {last}, outside the {total} values")
        return self._values[first:last]

    def __iter__(self) -> Iterator[Array]:
        """The rows, as views of the values."""
        return (self[row] for row in range(len(self)))

    @property
    def dtype(self) -> Any:
        """The NumPy or torch dtype of the values."""
        return self._values.dtype

    @property
    def total(self) -> int:
        """The number of tokens of all rows. On a GPU this waits once for the offsets, unless they came from the CPU."""
        facts = self.facts
        return facts.last - facts.first

    @property
    def max_length(self) -> int:
        """The length of the longest row, in tokens; 0 without rows. On a GPU this waits, as `total` does."""
        return self.facts.longest[1]

    @property
    def inner_shape(self) -> tuple[int, ...]:
        """The dimensions of one token, `...` in `[total, ...]`: `()` if a token is one number."""
        return tuple(self._values.shape[1:])

    __repr__, _repr_html_ = as_text, as_html

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Rows of one length as one array, `[rows, length, ...]`.

        Raises:
            TypeError: when the lengths differ, unless `dtype` is object; the message names the alternatives.
            ValueError: when no copy may be made.
        """
        lengths = np.diff(self._spanned()[1])
        if np.dtype(dtype) != object and len(lengths) and (lengths != lengths[0]).any():
            raise TypeError(
                f"a Ragged with rows of {lengths.min()} to {lengths.max()} tokens is not rectangular: use to_padded() "
                "for a padded array, to_lists() for lists, or .values and .offsets for the flat numbers"
            )
        if copy is False:
            raise ValueError("a Ragged cannot become an array without a copy: use .values for its own memory")
        return np.array(list(self), dtype)

    def to_padded(
        self,
        *,
        padding_side: Literal["right", "left"] = "right",
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_value: int | float | bool = 0,
        dtype: Any = None,
        return_tensors: Framework | None = None,
    ) -> Array:
        """The rows padded to one length, `[rows, length, ...]`; see `quadrat.pad` for the options."""
        options = {"max_length": max_length, "pad_to_multiple_of": pad_to_multiple_of, "padding_value": padding_value}
        pad: Any = load("pad")
        return pad(self, padding_side=padding_side, dtype=dtype, return_tensors=return_tensors, **options)  # type: ignore[no-any-return]

    def to_nested(self) -> torch.Tensor:
        """The rows as a nested tensor of layout `torch.jagged`, `[rows, *, ...]`, over the same memory, with gradients.

        On a GPU this waits once for the offsets, unless they came from the CPU.

        Raises:
            NotImplementedError: with torch before 2.4, which cannot make such a tensor.
        """
        with needs("Ragged.to_nested"):
            import torch

        if not hasattr(torch.nested, "nested_tensor_from_jagged"):
            raise NotImplementedError(f"Ragged.to_nested needs torch 2.4 or later, not torch {torch.__version__}")
        rows = self if is_tensor(self._values) else self.to("cpu")
        first, last, _ = rows.facts
        values, offsets = rows._values, rows._offsets.long()
        if (first, last) != (0, len(values)):
            values, offsets = values[first:last], offsets - first
        return torch.nested.nested_tensor_from_jagged(values, offsets)

    def to_arrow(self) -> pyarrow.ListArray | pyarrow.LargeListArray:
        """The rows as a `pyarrow.ListArray` over the same values, for a column of a table.

        Trailing dimensions become inner lists of fixed size. It is a `LargeListArray` if the rows have 2^31 values or
        more. Values are copied if they are bools (Arrow stores them as bits), not contiguous, or on a GPU; there, rows
        outside the values are cut.

        Raises:
            ModuleNotFoundError: without pyarrow.
            TypeError: when Arrow has no such dtype, for example bfloat16.
            ValueError: when the offsets decrease, which is possible only on a GPU.
        """
        values, bounds = self._spanned()
        with needs("Ragged.to_arrow"):
            import pyarrow as pa
        kind = str(values.dtype).removeprefix("torch.")
        if kind not in NUMPY_KINDS:
            raise TypeError(
                f"Arrow has no {kind}: convert the values first, for example "
                "`quadrat.Ragged(ragged.values.float(), ragged.offsets).to_arrow()`"
            )
        falls = np.flatnonzero(bounds[1:] < bounds[:-1])
        if falls.size:
            raise ValueError(f"offsets must not decrease, but do at row {int(falls[0])}")
        numbers = np.ascontiguousarray(values.numpy(force=True) if is_tensor(values) else values)
        items = pa.array(numbers.reshape(-1))
        for axis in range(numbers.ndim - 1, 0, -1):
            lists, count = pa.list_(items.type, numbers.shape[axis]), math.prod(numbers.shape[:axis])
            # FixedSizeListArray.from_arrays refuses lists of size 0.
            items = pa.Array.from_buffers(lists, count, [None], null_count=0, children=[items])
        if bounds[-1] > np.iinfo(np.int32).max:
            return pa.LargeListArray.from_arrays(pa.array(bounds), items)
        return pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), items)

    def to_lists(self) -> list[list[Any]]:
        """The rows as Python lists, for example for `tokenizer.batch_decode`; on a GPU, cut to the values."""
        values, bounds = self._spanned()
        values = as_numbers(values)  # NumPy makes lists faster than torch
        return [values[first:last].tolist() for first, last in pairwise(bounds.tolist())]

    def _spanned(self) -> tuple[Any, IntArray]:
        """The values from the first row to the last, on the CPU, and where in them the rows begin and end."""
        if on_gpu(self._offsets):
            bounds = np.clip(as_numpy(self._offsets.cpu(), "offsets").astype(np.int64), 0, len(self._values))
        else:
            bounds, _ = self._checked()
            require_plain(self._values, "values")
        first, last = int(bounds.min()), int(bounds.max())
        values = self._values[first:last]
        return values.cpu() if on_gpu(values) else values, bounds - first

    def _source(self) -> RowSource:
        values, carried = dense(self._values, "values"), None
        if (carrier := carrier_of(values.dtype)) is not None:
            values, carried = values.view(carrier), values
        offsets, _ = self._checked()
        columns, kind = _core.Columns(), kind_of(values.dtype)
        place = address_of(values), kind, len(values), address_of(offsets), len(offsets) - 1
        columns.add_ragged(*place, values.shape[1:])
        framework: Framework = "pt" if is_tensor(values) else "np"
        return RowSource(columns, framework, keep=(values, offsets), kind=kind, carried=carried)


def source_of(rows: Any) -> RowSource:
    """The rows of a `Ragged` or of a sequence of rows. Raises TypeError."""
    return rows._source() if isinstance(rows, Ragged) else RowSource.of(rows)
