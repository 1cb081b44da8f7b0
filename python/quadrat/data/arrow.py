"""The rows of a `datasets.Dataset` where they lie in Arrow, and `ArrowDataset`, whose batches stay there."""

import contextlib
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from quadrat import _core
from quadrat.input.rows import Rows, table_of_arrow
from quadrat.support.columns import ARRAY, BOOLS, FLOATS, INTS, OTHER, SCALAR, TENSOR, TENSOR_NUMBER
from quadrat.support.extras import needs
from quadrat.support.kinds import kind_of
from quadrat.support.tensors import is_tensor

with needs("quadrat.data.arrow", "datasets"):
    import datasets
    import pyarrow as pa
    from datasets import arrow_dataset, formatting
    from datasets.features.features import require_decoding

with contextlib.suppress(ImportError):  # its trees are of lists, not of what looks like one
    from torch.utils import _pytree

    _pytree.register_pytree_node(Rows, lambda rows: (rows.as_list(), None), lambda rows, _: list(rows))

Look = tuple[int, int]  # a form and a kind of `_core.Table`

PYTHON: Look = 0, 0  # numbers and lists
OBJECT: Look = OTHER, 0

_MOST_SKIPS = 64  # batches, or rows

# What a DataLoader calls, as `datasets` has it, whatever is put in its place later.
original_getitems, original_getitem = datasets.Dataset.__getitems__, datasets.Dataset.__getitem__
_original_row = datasets.Dataset._getitem
_STATE = ("_data", "_indices", "_format_type", "_format_columns", "_format_kwargs", "_output_all_columns", "_info")
_state_of = operator.attrgetter(*_STATE)


def _readers(format_type: str | None) -> tuple[Any, ...]:
    """The functions of `datasets` that a row goes through."""
    formatter = formatting._FORMAT_TYPES.get(format_type)
    return (
        arrow_dataset.query_table,
        arrow_dataset.get_formatter,
        arrow_dataset.format_table,
        formatter and (formatter, formatter.format_row, formatter.format_batch),
    )


_READERS = {format_type: _readers(format_type) for format_type in (None, "python", "numpy", "torch")}


def reads_as_datasets(dataset: datasets.Dataset, getitem: Any, format_type: str | None) -> bool:
    """True if `datasets` itself reads the rows, in a known format; `getitem`: a `__getitem__` that may be there."""
    cls, attributes = type(dataset), vars(dataset)
    return (
        (cls.__getitem__ is getitem or cls.__getitem__ is original_getitem)
        and cls._getitem is _original_row
        and "_getitem" not in attributes
        and "__getitem__" not in attributes
        and _READERS.get(format_type) == _readers(format_type)
    )


class StoredRows:
    """The rows of a dataset while its state is the one it had; `formatted`: other code sees them in its format."""

    def __init__(self, dataset: datasets.Dataset, *, formatted: bool) -> None:
        self._state = _state_of(dataset)
        self._formatted = formatted
        self._left = 0  # rows that `datasets` reads before the next look whether others can; 0: not counted yet
        self._step = self._skips = 0  # batches that `datasets` reads at once, because others read the last ones
        self._table: _core.Table | None = None
        self._mapping: _core.FlatColumn | None = None
        self._is_plain = False

    def is_of(self, dataset: datasets.Dataset) -> bool:
        """True if the dataset is as it was."""
        return all(map(operator.is_, _state_of(dataset), self._state))

    def rows(self, keys: Sequence[int]) -> Rows | None:
        """The rows at `keys`; None where they cannot stay in Arrow. Raises IndexError."""
        self._opened  # noqa: B018 - opens the table
        if self._table is None:
            self._skips = _MOST_SKIPS
            return None
        rows = Rows(self._table, keys, self._mapping)
        if self._formatted and not self._is_plain:
            self._step //= 2
            rows.read_by(functools.partial(self._read, list(keys)))
        return rows

    def _read(self, keys: list[int]) -> list[dict[str, Any]]:
        """The rows as `datasets` reads them. Who asks for them is likely to ask again, and not to collate in Arrow."""
        self._skips = self._step = min(4 * self._step + 2, _MOST_SKIPS)
        return original_getitems(self._opened, keys)  # type: ignore[no-any-return]

    def skips_batch(self) -> bool:
        """True if `datasets` is to read the next batch at once."""
        if self._skips > 0:
            self._skips -= 1
            return True
        return False

    def skips_row(self) -> bool:
        """True if `datasets` is to read the next row: the table is not open yet, or does not give rows."""
        if self._left > 1:
            self._left -= 1
            return True
        return False

    def row(self, key: int) -> dict[str, Any] | None:
        """A row of Python's numbers, lists and strings; None where `datasets` is to read it. Raises IndexError."""
        if not self._left and "_opened" not in vars(self):
            self._left = _MOST_SKIPS * max((column.num_chunks for column in self._state[0].table.columns), default=1)
            return None
        self._opened  # noqa: B018 - opens the table
        if self._table is None or not self._is_plain:
            self._left = _MOST_SKIPS
            return None
        return self._table.row(key) if self._mapping is None else self._table.row(key, self._mapping)

    @functools.cached_property
    def _opened(self) -> datasets.Dataset:
        """The dataset as it was, whatever happens to the other one; its table is open."""
        dataset = self._copy()
        arrow, chosen = dataset._data.table, dataset._format_columns
        some = chosen is not None and not set(arrow.column_names) <= set(chosen)
        if self._formatted and dataset._output_all_columns and some:
            return dataset  # columns that are not chosen come last, and as Python's lists
        if chosen is not None and not dataset._output_all_columns:
            arrow = arrow.select([name for name in arrow.column_names if name in chosen])
        stored = self._copy(_indices=None)  # the rows in the order they are stored in
        if not self._formatted:
            stored._format_type, stored._format_kwargs = None, {}
        looks = [_look_of(stored, field) for field in arrow.schema]
        if not self._formatted or all(map(functools.partial(_waits, stored._format_type), looks, arrow.columns)):
            plain = all(look == PYTHON for look in looks) and all(map(is_plain_type, arrow.schema.types))
            self._is_plain = plain and not dataset._format_kwargs
            self._mapping = None if dataset._indices is None else _core.arrow_columns(dataset._indices.table)[1][0]
            value_of = lambda name, row: original_getitems(stored, [row])[0][name]  # noqa: E731
            self._table = table_of_arrow(_copy_of(arrow), value_of, looks)
        return dataset

    def _copy(self, **state: Any) -> datasets.Dataset:
        copy = object.__new__(datasets.Dataset)
        vars(copy).update(zip(_STATE, self._state, strict=True), **state)
        return copy


def _waits(format_type: str | None, look: Look, column: pa.ChunkedArray) -> bool:
    """True if the rows of a column may be made later, and one by one: nothing is raised, nor depends on others."""
    if format_type in (None, "python"):
        return look == PYTHON
    if look == OBJECT:
        return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))
    lists = hasattr(column.type, "value_type")
    return not column.null_count and not (lists and any(chunk.values.null_count for chunk in column.chunks))


def _look_of(stored: datasets.Dataset, field: pa.Field) -> Look:
    if require_decoding(stored._info.features[field.name]):
        return OBJECT
    kind = stored._format_type
    if kind in (None, "python"):
        return PYTHON
    return look_as(kind, tuple(sorted((stored._format_kwargs or {}).items())), field.type)


def _copy_of(table: pa.Table) -> pa.Table:
    """The same memory in other arrays: to read one counts its nulls, and the count is part of what is pickled."""
    columns = [pa.chunked_array([_array_of(chunk) for chunk in column.chunks], column.type) for column in table.columns]
    return pa.table(columns, schema=table.schema)


def _array_of(array: pa.Array) -> pa.Array:
    kind = array.type
    if isinstance(kind, pa.ExtensionType):
        return pa.ExtensionArray.from_storage(kind, _array_of(array.storage))
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if lists or pa.types.is_fixed_size_list(kind):
        buffers, items = array.buffers()[: 1 + lists], [_array_of(array.values)]
        return pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset, children=items)
    return array.slice(0)


def is_plain_type(kind: pa.DataType) -> bool:
    """True if Python has numbers, texts or lists of them for this type."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return is_plain_type(kind.value_type)
    return _is_number(kind) or bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


@functools.lru_cache(maxsize=256)
def look_as(format_type: str, options: tuple[tuple[str, Any], ...], kind: pa.DataType) -> Look:
    """The form of an Arrow type's values in a format; the installed `datasets` is asked by trying it."""
    item = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else kind
    if not _is_number(item):
        return OBJECT
    column = pa.array([1, 0, 1]).cast(item)
    if item is not kind:
        column = type(pa.array([], kind)).from_arrays([0, 1, 3], column)
    probe = datasets.Dataset(pa.table({"column": column})).with_format(format_type, **dict(options))
    seen = original_getitem(probe, [0, 1])["column"][1]
    try:
        return _look_of_value(seen, kind_of(item.to_pandas_dtype()))
    except TypeError:  # numbers of a kind that is not known
        return OBJECT


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


class ArrowDataset(datasets.Dataset):  # type: ignore[misc]
    """A `datasets.Dataset` whose batches quadrat's collators read directly from Arrow.

    It has the rows, columns, format and methods of the dataset it was made from, in whose place it goes into a
    DataLoader or Trainer (which removes the columns that the model does not take). A batch,
    `ds.__getitems__([3, 1, 2])`, only refers to rows: a collator of quadrat reads them when it writes its tensors, and
    for other code it is the list of dicts that `datasets.Dataset` gives. The dataset may be memory-mapped or in memory,
    concatenated, and have an indices mapping. Methods that choose or order rows or columns return an `ArrowDataset`
    again.

    Rows are read as Python numbers and lists, whatever type `with_format` asks for; its choice of columns is kept. With
    a transform (`set_transform`) batches are those of `datasets.Dataset`.

    Args:
        dataset: a `datasets.Dataset`, which does not change.
        columns: the columns to keep; by default all of them.

    Raises:
        TypeError: when `dataset` is not a `datasets.Dataset`.
        ValueError: when the dataset lacks one of `columns`.

    Examples:
        >>> import datasets, quadrat
        >>> dataset = datasets.Dataset.from_dict({"input_ids": [[5, 6, 7], [8]], "label": [0, 1]})
        >>> rows = quadrat.ArrowDataset(dataset, columns=["input_ids"])
        >>> quadrat.DataCollatorWithFlattening()(rows.__getitems__([1, 0]))["input_ids"]  # as in a DataLoader
        tensor([[8, 5, 6, 7]])
        >>> list(rows.__getitems__([1, 0]))
        [{'input_ids': [8]}, {'input_ids': [5, 6, 7]}]
    """

    def __init__(self, dataset: datasets.Dataset, columns: Sequence[str] | None = None) -> None:
        if not isinstance(dataset, datasets.Dataset):
            raise TypeError(
                f"ArrowDataset takes a datasets.Dataset, not {type(dataset).__name__}: give one split of a DatasetDict;"
                " an IterableDataset cannot be indexed by row"
            )
        chosen = dataset if columns is None else dataset.select_columns(list(columns))
        super().__init__(chosen._data, chosen.info, chosen.split, chosen._indices, chosen._fingerprint)
        for name in ("_format_type", "_format_kwargs", "_format_columns", "_output_all_columns"):
            setattr(self, name, getattr(chosen, name))

    def __getitems__(self, keys: Sequence[int]) -> Any:
        """The rows at `keys`, as `quadrat.input.rows.Rows`, a list for other code. Raises IndexError."""
        if self._format_type == "custom" or not reads_as_datasets(self, datasets.Dataset.__getitem__, None):
            return super().__getitems__(keys)
        stored: StoredRows | None = self.__dict__.get("_quadrat_stored")
        if stored is None or not stored.is_of(self):
            stored = self.__dict__["_quadrat_stored"] = StoredRows(self, formatted=False)
        return stored.rows(keys)

    def __repr__(self) -> str:
        return f"Arrow{super().__repr__()}"

    def __getstate__(self) -> dict[str, Any]:
        """The dataset's own state: another process finds its memory anew."""
        return {name: value for name, value in self.__dict__.copy().items() if not name.startswith("_quadrat")}


def _staying(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def stays(self: ArrowDataset, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        plain = isinstance(result, datasets.Dataset) and not isinstance(result, ArrowDataset)
        return ArrowDataset(result) if plain else result

    return stays


for _name in ("select", "shuffle", "sort", "filter", "shard", "skip", "take", "repeat", "flatten_indices", "map"):
    if hasattr(datasets.Dataset, _name):
        setattr(ArrowDataset, _name, _staying(getattr(datasets.Dataset, _name)))
