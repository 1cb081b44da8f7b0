"""The rows of a `datasets.Dataset` where they lie in Arrow, and what they look like to other code."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from quadrat import _core
from quadrat.input.columns import ARRAY, BOOLS, FLOATS, INTS, OTHER, SCALAR, TENSOR, TENSOR_NUMBER
from quadrat.input.rows import Rows, table_of_arrow
from quadrat.support.extras import needs
from quadrat.support.memory import is_tensor, kind_of

with needs("quadrat.data.stored", "datasets"):
    import datasets
    import pyarrow as pa
    from datasets.features.features import require_decoding

Look = tuple[int, int]  # a form and a kind of `_core.Table`

PYTHON: Look = 0, 0  # numbers and lists
OBJECT: Look = OTHER, 0

# What a DataLoader calls, as `datasets` has it, whatever is put in its place later.
original_getitems = datasets.Dataset.__getitems__
_STATE = ("_data", "_indices", "_format_type", "_format_columns", "_format_kwargs", "_output_all_columns", "_info")


class StoredRows:
    """The rows of a dataset, as long as its state is the one it had.

    Args:
        dataset: a `datasets.Dataset`, which is left as it is.
        formatted: whether rows are to other code what its format says, and not Python's numbers and lists.
    """

    def __init__(self, dataset: datasets.Dataset, *, formatted: bool) -> None:
        self._state = tuple(getattr(dataset, name) for name in _STATE)
        self._dataset = object.__new__(datasets.Dataset)  # whatever happens to the other one
        vars(self._dataset).update(
            {name: value for name, value in vars(dataset).copy().items() if "quadrat" not in name}
        )
        self._stored = object.__new__(datasets.Dataset)  # the rows in the order they are stored in
        vars(self._stored).update({**vars(self._dataset), "_indices": None})
        self._formatted = formatted
        if not formatted:
            self._stored._format_type, self._stored._format_kwargs = None, {}
        self._table: _core.Table | None = None
        self._mapping: _core.FlatColumn | None = None
        self.is_plain = False
        if dataset._format_type in ((None, "python", "numpy", "torch") if formatted else (dataset._format_type,)):
            self._open(dataset)

    def is_of(self, dataset: datasets.Dataset) -> bool:
        """Whether the dataset is as it was."""
        data, indices, kind, columns, kwargs, output_all, info = self._state
        return (
            dataset._data is data
            and dataset._indices is indices
            and dataset._format_type is kind
            and dataset._format_columns is columns
            and dataset._format_kwargs is kwargs
            and dataset._output_all_columns is output_all
            and dataset._info is info
        )

    def rows(self, keys: Sequence[int]) -> Rows | None:
        """The rows at `keys`; None where they cannot stay in Arrow. Raises IndexError."""
        if self._table is None:
            return None
        rows = Rows(self._table, keys, self._mapping)
        if self._formatted:
            rows.read_by(functools.partial(original_getitems, self._dataset, list(keys)))
        return rows

    def row(self, key: int) -> dict[str, Any]:
        """A row of Python's numbers, lists and strings; only where `is_plain`. Raises IndexError."""
        assert self._table is not None
        return _core.TableRows(self._table, (key,), self._mapping).row(0)

    def _open(self, dataset: datasets.Dataset) -> None:
        arrow = dataset._data.table
        chosen = dataset._format_columns
        some = chosen is not None and not set(arrow.column_names) <= set(chosen)
        if self._formatted and dataset._output_all_columns and some:
            return  # columns that are not chosen come last, and as Python's lists
        if dataset._format_columns is not None and not dataset._output_all_columns:
            arrow = arrow.select([name for name in arrow.column_names if name in dataset._format_columns])
        looks = [self._look_of(field) for field in arrow.schema]
        if self._formatted and not all(map(self._waits, looks, arrow.columns)):
            return
        self._table = table_of_arrow(_copy_of(arrow), self._value, looks)
        self._mapping = None if dataset._indices is None else _core.arrow_columns(dataset._indices.table)[1][0]
        self.is_plain = all(look == PYTHON for look in looks) and all(map(_is_plain, arrow.schema.types))

    def _waits(self, look: Look, column: pa.ChunkedArray) -> bool:
        """Whether the rows of a column may be made later, and one by one: nothing is raised, nor depends on others."""
        if self._stored._format_type in (None, "python"):
            return look == PYTHON
        if look == OBJECT:
            return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))
        lists = hasattr(column.type, "value_type")
        return not column.null_count and not (lists and any(chunk.values.null_count for chunk in column.chunks))

    def _value(self, name: str, row: int) -> Any:
        return original_getitems(self._stored, [row])[0][name]

    def _look_of(self, field: pa.Field) -> Look:
        if require_decoding(self._dataset._info.features[field.name]):
            return OBJECT
        kind = self._stored._format_type
        if kind in (None, "python"):
            return PYTHON
        options = self._stored._format_kwargs or {}
        return look_as(kind, tuple(sorted(options.items())), field.type)


def _copy_of(table: pa.Table) -> pa.Table:
    """The same memory in other arrays: to read one counts its nulls, and the count is part of what is pickled."""
    columns = [pa.chunked_array([_array_of(chunk) for chunk in one.chunks], one.type) for one in table.columns]
    return pa.table(columns, schema=table.schema)


def _array_of(array: pa.Array) -> pa.Array:
    kind, children = array.type, None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        children = [_array_of(array.values)]
    elif kind.num_fields or pa.types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType):
        return array
    own = array.buffers()[: 2 if children else None]
    return pa.Array.from_buffers(kind, len(array), own, offset=array.offset, children=children)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Python has numbers, texts or lists of them for this type."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _is_plain(kind.value_type)
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string
        )
    )  # fmt: skip


@functools.lru_cache(maxsize=256)
def look_as(format_type: str, options: tuple[tuple[str, Any], ...], kind: pa.DataType) -> Look:
    """What values of an Arrow type look like in a format; the installed `datasets` is asked by trying it."""
    item = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else kind
    if not (pa.types.is_integer(item) or pa.types.is_floating(item) or pa.types.is_boolean(item)):
        return OBJECT
    column = pa.array([1, 0, 1]).cast(item)
    if item is not kind:
        column = type(pa.array([], kind)).from_arrays(pa.array([0, 1, 3]).cast(_offset_type(kind)), column)
    probe = datasets.Dataset(pa.table({"column": column})).with_format(format_type, **dict(options))
    seen = original_getitems(probe, [0, 1])[1]["column"]
    try:
        return _look_of_value(seen, kind_of(item.to_pandas_dtype()))
    except TypeError:  # numbers of a kind that is not known
        return OBJECT


def _offset_type(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_large_list(kind) else pa.int32()


def _look_of_value(seen: Any, stored: int) -> Look:
    """The form and kind of a value, where numbers of the kind `stored` become those without a loss but rounding."""
    form = OTHER
    if is_tensor(seen) and seen.ndim < 2 and seen.device.type == "cpu":
        form = (TENSOR_NUMBER, TENSOR)[seen.ndim]
    elif type(seen) is np.ndarray and seen.ndim == 1:
        form = ARRAY
    elif isinstance(seen, np.generic):
        form = SCALAR
    if form == OTHER:
        return OBJECT
    kind = kind_of(seen.dtype)
    bits, was = 1 << kind, 1 << stored
    same = bits == was or (was & INTS and bits == 1 << kind_of(np.int64)) or (was & FLOATS and bits & FLOATS)
    return (form, kind) if same and not (was & BOOLS and not bits & BOOLS) else OBJECT
