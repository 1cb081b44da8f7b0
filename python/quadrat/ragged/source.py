"""`RowSource`: the rows that a function was given, whatever holds them."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from quadrat import _core
from quadrat.ragged.offsets import Facts, bounds_of, tensor_or_array
from quadrat.support.arrays import IntArray, carrier_of, fast_form, is_array, require_own_dtype
from quadrat.support.columns import ARRAY, DEEP, ROWS, explain, inferred_kind
from quadrat.support.kinds import FLOAT64, INT64, Framework, framework_of, kind_of
from quadrat.support.memory import address_of, empty, interop
from quadrat.support.tensors import is_tensor, require_unrecorded

_ERRORS = {
    _core.CODES.NO_CONVERSION: TypeError,
    _core.CODES.OUT_OF_RANGE: OverflowError,
    _core.CODES.WRONG_TYPE: TypeError,
    _core.CODES.UNEVEN: TypeError,
}


class RowSource:
    """One ragged column with what the functions need to know of it."""

    def __init__(
        self, columns: _core.Columns, framework: Framework, *, keep: Any, kind: int | None = None, carried: Any = None
    ) -> None:
        """`keep` owns the memory the rows point into; `kind` is that of the values of a `Ragged`, or of a carrier."""
        self.columns = columns  # the rows are column 0
        self.framework: Framework = framework  # that of the rows; "np" for Python lists
        self.lengths: IntArray = np.empty(columns.count(0), np.int64)  # `[rows]`, in tokens
        columns.lengths(0, address_of(self.lengths))
        self.trailing = columns.trailing(0)  # the dimensions of a token
        self.carried = carried  # an array of the rows' dtype, where integers stand in their place, see `carrier_of`
        self._keep = keep
        _, _, kinds, *_, self.total = columns.describe(0)  # tokens in all rows
        self._kinds = kinds if kind is None else 1 << kind

    @classmethod
    def of(cls, rows: Any) -> RowSource:
        """The rows of a sequence of rows, or of an Arrow array of lists. Raises TypeError."""
        if hasattr(rows, "__arrow_c_array__") or hasattr(rows, "__arrow_c_stream__"):
            return cls._of_arrow(rows)
        if not isinstance(rows, (list, tuple)):
            raise TypeError(f"rows must be a Ragged or a list of rows, not {type(rows).__name__}")
        if any(map(is_tensor, rows)):
            require_unrecorded("rows")
        carriers = _as_carriers(rows)
        columns = _core.Columns()
        columns.add_values(rows if carriers is None else carriers, interop())
        if columns.describe(0)[0] & ~(ROWS | DEEP):
            shapes = [_token_shape(value) for value in rows]
            row = next(row for row, shape in enumerate(shapes) if shape is None or shape != shapes[0])
            if shapes[row] is not None:
                raise TypeError(
                    f"row {row} has tokens of the shape {shapes[row]}, row 0 of {shapes[0]}: rows may differ in their "
                    "first dimension only"
                )
            raise TypeError(
                f"row {row} is {_shown(rows[row])}: each row must be a list or tuple of numbers, or of equally long "
                "lists, a 1-D NumPy array, a dense 1-D CPU tensor, or a contiguous array or tensor of more dimensions"
                f"{_remedy(rows[row])}"
            )
        framework: Framework = "pt" if len(rows) and is_tensor(rows[0]) else "np"
        carried, kind = (None, None) if carriers is None else (rows[0], kind_of(carriers[0].dtype))
        return cls(columns, framework, keep=(rows, carriers), kind=kind, carried=carried)

    @classmethod
    def _of_arrow(cls, rows: Any) -> RowSource:
        names, columns = _core.arrow_columns(rows, "rows")
        kind = columns[0].kind if names is None else None
        if kind is None:
            raise TypeError(f"rows must be an Arrow array of lists of numbers, not a {type(rows).__name__} of others")
        table = _core.Table(("rows",), columns, lambda *_: None, [(ARRAY, kind)])
        collected = _core.collect(_core.TableRows(table), None, interop())
        assert collected is not None
        if collected[1].describe(0)[0] & ~(ARRAY | DEEP):
            raise TypeError("the Arrow rows have nulls, or lists that differ in length where only rows may")
        return cls(collected[1], "np", keep=table)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def kind(self) -> int:
        """The kind of the rows' numbers, int64 where there are none. Raises TypeError when they have none in common."""
        if self._kinds.bit_count() == 1:
            return self._kinds.bit_length() - 1
        kind = inferred_kind(self._kinds, FLOAT64) if self._kinds else INT64
        if kind is None:
            raise TypeError("the rows hold different kinds of numbers: convert them to one dtype, or give dtype=")
        return kind

    @property
    def longest(self) -> tuple[int, int]:
        """The longest row and its length in tokens; (0, 0) when there is no row."""
        row = int(self.lengths.argmax()) if len(self) else 0
        return row, int(self.lengths[row]) if len(self) else 0

    def output(self, dtype: Any, return_tensors: Framework | None) -> tuple[Framework, int]:
        """The library and the kind of an output. Raises TypeError and ValueError."""
        if self.carried is not None:
            require_own_dtype(self.carried, dtype, return_tensors)
            return self.framework, self.kind
        kind = self.kind if dtype is None else kind_of(dtype)
        return framework_of(return_tensors, self.framework, kind), kind

    def joined(self, dtype: Any, return_tensors: Framework | None) -> tuple[Any, Any, Facts]:
        """A copy of all rows in one: values, offsets and what is known of them. Raises TypeError and OverflowError."""
        framework, kind = self.output(dtype, return_tensors)
        values, address = empty(framework, (self.total, *self.trailing), kind)
        if (failure := self.columns.flatten(0, address, kind, self.total)) is not None:
            raise_failure(failure)
        values = values if self.carried is None else values.view(self.carried.dtype)
        return values, tensor_or_array(bounds_of(self.lengths), values), Facts(0, self.total, self.longest)


def raise_failure(failure: tuple[int, int, int]) -> NoReturn:
    """Raise what a kernel reported. Raises OverflowError, TypeError or ValueError."""
    raise _ERRORS.get(failure[0], ValueError)(explain(failure))


def _as_carriers(rows: Any) -> list[Any] | None:
    """Rows of one dtype that no kernel computes with, as integers of their size; None for all others."""
    first: Any = rows[0] if rows else None
    try:
        carrier = carrier_of(first.dtype) if is_array(first) else None
        if carrier is None or any(row.dtype != first.dtype or (is_tensor(row) and row.requires_grad) for row in rows):
            return None
        return [row.view(carrier) for row in rows]
    except (AttributeError, RuntimeError, TypeError, ValueError):  # other rows, or numbers not in memory
        return None


def _remedy(row: Any) -> str:
    if (form := fast_form(row)) is not None:
        return f"; the copy would have no gradient: give {form}" if is_tensor(row) else f"; give {form}"
    return "; tokenize text first" if isinstance(row, str) else ""


def _token_shape(value: Any) -> tuple[int, ...] | None:
    columns = _core.Columns()
    columns.add_values([value], interop())
    return None if columns.describe(0)[0] & ~(ROWS | DEEP) else columns.trailing(0)


def _shown(value: Any) -> str:
    if is_tensor(value):  # whose numbers may not be there to be shown
        return f"the {type(value).__name__} of {value.dtype} on {value.device}"
    text = " ".join(repr(value).split())
    return f"the {type(value).__name__} {text if len(text) <= 40 else text[:40] + '...'}"
