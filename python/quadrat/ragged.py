"""`Ragged`: rows of different lengths, stored flat."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from quadrat import _core
from quadrat._memory import FLOAT64, INT64, Framework, address_of, empty, interop, is_tensor, kind_of
from quadrat.ingest import ROWS, explain, inferred_kind


class Ragged:
    """Rows of different lengths as flat values and offsets, the layout of Arrow lists and of `cu_seqlens`.

    Row `i` is `values[offsets[i]:offsets[i + 1]]`.

    Args:
        values: NumPy array or CPU torch tensor, `[total, ...]`.
        offsets: `[rows + 1]` integers of the same library, rising from 0 to at most `total`.

    Raises:
        TypeError: when `values` or `offsets` are not arrays of one library, or their dtypes are not known.
        ValueError: when `offsets` decrease, are empty, or run past the values.
    """

    __slots__ = ("offsets", "values")

    def __init__(self, values: Any, offsets: Any) -> None:
        """See the class."""
        torch_values = is_tensor(values)
        if torch_values != is_tensor(offsets) or not (torch_values or isinstance(values, np.ndarray)):
            raise TypeError(
                f"values and offsets must both be NumPy arrays or both torch tensors, not {type(values).__name__} and "
                f"{type(offsets).__name__}"
            )
        if torch_values and (values.device.type != "cpu" or offsets.device.type != "cpu"):
            raise ValueError(f"values are on {values.device}, offsets on {offsets.device}; both must be on the CPU")
        if values.ndim < 1:
            raise ValueError("values must have at least one dimension")
        kind_of(values.dtype)
        if "int" not in str(offsets.dtype) or offsets.ndim != 1 or len(offsets) == 0:
            raise ValueError("offsets must be integers of one dimension, one more than there are rows")
        steps = offsets[1:] - offsets[:-1]
        if int(offsets[0]) < 0 or bool((steps < 0).any()) or int(offsets[-1]) > len(values):
            raise ValueError(
                f"offsets must rise from 0 and stay within the {len(values)} values; they run from {int(offsets[0])} "
                f"to {int(offsets[-1])}" + (" and decrease in between" if bool((steps < 0).any()) else "")
            )
        self.values = values
        self.offsets = offsets

    @classmethod
    def from_rows(cls, rows: Sequence[Any], *, dtype: Any = None, return_tensors: Framework | None = None) -> Ragged:
        """Copy a sequence of rows (lists, tuples, 1-D NumPy arrays or torch tensors) into one `Ragged`.

        Args:
            rows: the rows; numbers of one kind.
            dtype: of the values; by default that of the rows, int64 or float64 for Python numbers.
            return_tensors: "np" or "pt"; by default that of the first row, "np" for Python lists.

        Raises:
            TypeError: when a row is no row of numbers, or the rows hold different kinds.
            OverflowError: when a number does not fit the dtype.
        """
        source = RowSource.of(rows)
        framework = return_tensors or source.framework
        kind = source.kind if dtype is None else kind_of(dtype)
        values, address = empty(framework, (source.total,), kind)
        source.require(source.columns.flatten(0, address, kind, source.total))
        offsets, offsets_address = empty(framework, (len(source) + 1,), INT64)
        offsets[0] = 0
        source.columns.lengths(0, offsets_address + 8)
        view = offsets.numpy() if framework == "pt" else offsets
        np.cumsum(view, out=view)
        return cls(values, offsets)

    @property
    def lengths(self) -> Any:
        """`[rows]` lengths, in tokens, of the dtype of the offsets."""
        return self.offsets[1:] - self.offsets[:-1]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        """Row `index` as a view of the values; a slice without a step as a `Ragged` over the same values."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("a Ragged is sliced without a step")
            return Ragged(self.values, self.offsets[start : max(start, stop) + 1])
        row = operator.index(index)
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        row %= len(self)
        return self.values[int(self.offsets[row]) : int(self.offsets[row + 1])]

    def __iter__(self) -> Iterator[Any]:
        """The rows, as views of the values."""
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        """Rows, tokens and dtype."""
        tokens = int(self.offsets[-1]) - int(self.offsets[0])
        return f"Ragged({len(self)} rows, {tokens} tokens, {self.values.dtype})"

    def to_lists(self) -> list[list[Any]]:
        """The rows as Python lists."""
        return [row.tolist() for row in self]


class RowSource:
    """One ragged column with what the functions need to know of it: kind, framework, trailing shape."""

    def __init__(
        self, columns: _core.Columns, kind: int, framework: Framework, keep: Any, trailing: tuple[int, ...] = ()
    ) -> None:
        """`keep`: what owns the memory the rows point into."""
        self.columns = columns
        self.kind = kind
        self.framework: Framework = framework
        self.trailing = trailing
        self.inner = int(np.prod(trailing, dtype=np.int64))
        self._keep = keep
        self._longest, self._total = columns.describe(0)[4:]

    @classmethod
    def of(cls, rows: Any) -> RowSource:
        """The rows of a `Ragged` or of a sequence of rows. Raises TypeError."""
        if isinstance(rows, Ragged):
            return cls._of_ragged(rows)
        if not isinstance(rows, (list, tuple)):
            raise TypeError(f"rows must be a Ragged or a list of rows, not {type(rows).__name__}")
        columns = _core.Columns()
        columns.add_values(rows, interop())
        forms, _, kinds, *_ = columns.describe(0)
        if forms & ~ROWS:
            row = next(row for row, value in enumerate(rows) if not _is_row(value))
            raise TypeError(
                f"row {row} is {_shown(rows[row])}: rows must be lists or tuples of numbers, or one-dimensional arrays "
                "or CPU tensors of a known dtype"
            )
        kind = _common_kind(kinds)
        framework: Framework = "pt" if rows and is_tensor(rows[0]) else "np"
        return cls(columns, kind, framework, rows)

    @classmethod
    def _of_ragged(cls, ragged: Ragged) -> RowSource:
        framework: Framework = "pt" if is_tensor(ragged.values) else "np"
        values = ragged.values.contiguous() if framework == "pt" else np.ascontiguousarray(ragged.values)
        offsets = ragged.offsets.numpy() if framework == "pt" else ragged.offsets
        offsets = np.ascontiguousarray(offsets, np.int64)
        trailing = tuple(values.shape[1:])
        kind = kind_of(values.dtype)
        columns = _core.Columns()
        columns.add_ragged(
            address_of(values), kind, len(values), address_of(offsets), len(ragged), int(np.prod(trailing, dtype=int))
        )
        return cls(columns, kind, framework, values, trailing)

    def __len__(self) -> int:
        """The number of rows."""
        return self.columns.count(0)

    @property
    def total(self) -> int:
        """Elements in all rows."""
        return self._total

    @property
    def longest(self) -> int:
        """Tokens in the longest row; 0 when there is no row."""
        return self._longest // self.inner if self.inner else 0

    def require(self, failure: tuple[int, int, int] | None) -> None:
        """Raise what a kernel reported. Raises OverflowError, TypeError or ValueError."""
        if failure is not None:
            error = {3: TypeError, 4: OverflowError, 5: TypeError}.get(failure[0], ValueError)
            raise error(explain(failure))


def _is_row(value: Any) -> bool:
    columns = _core.Columns()
    columns.add_values([value], interop())
    return not columns.describe(0)[0] & ~ROWS


def _shown(value: Any) -> str:
    text = repr(value)
    return f"the {type(value).__name__} {text if len(text) <= 40 else text[:40] + '...'}"


def _common_kind(kinds: int) -> int:
    if kinds.bit_count() == 1:
        return kinds.bit_length() - 1
    kind = inferred_kind(kinds, FLOAT64) if kinds else INT64
    if kind is None:
        raise TypeError("the rows hold different kinds of numbers; convert them to one dtype or give dtype=")
    return kind
