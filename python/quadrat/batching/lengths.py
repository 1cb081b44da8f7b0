"""The lengths of the rows of a dataset, read from Arrow without reading the rows."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from quadrat import _core
from quadrat.batching.row_tokens import tokens_in_batches
from quadrat.input.rows import MAIN, speaks_arrow
from quadrat.ragged import Ragged
from quadrat.ragged.offsets import as_lengths, require_each
from quadrat.support.arrays import IntArray, as_numpy
from quadrat.support.extras import needs
from quadrat.support.memory import interop
from quadrat.support.progress import progress_bar
from quadrat.support.tensors import is_tensor

_AT_A_TIME = 4096  # items that are held at once
_ITEMS = 256  # of a dataset that is read item by item, between two looks at the progress bar

# By the ids that Arrow gives types: offsets of `list` and `large_list`; these and lists of a size; extension types.
_OFFSETS: dict[int, np.dtype[Any]] = {25: np.dtype(np.int32), 36: np.dtype(np.int64)}
_LISTS, _EXTENSION = (*_OFFSETS, 32), 31
_NO_TOKENS = (
    "not of tokens: take off a dimension of size 1 (row[0]); for the choices of multiple choice, give "
    "quadrat.lengths(dataset, choices=True); else measure another column, or give the lengths yourself"
)
_ROW_FORMATS = (None, "python", "numpy", "torch")  # give mappings, whose rows are as long as the lists in Arrow


def lengths(dataset: Any, column: str = MAIN, *, choices: bool = False, weights: Any = None) -> IntArray:
    """Return the number of items in each row of a column: what the row takes in a batch, at least.

    Those of a `datasets.Dataset` and other Arrow data come from the offsets of the lists, also behind an indices
    mapping. Other datasets are read once, item by item, with a progress bar on a terminal.

    Args:
        dataset: a `datasets.Dataset`; a `pyarrow.Table`, or a list array of it, or anything with the Arrow PyCapsule
            interface, which needs pyarrow; a `Ragged`; a dict of columns; a list of mappings or of rows; any dataset
            with `len` whose items are mappings, or pairs of a mapping and a label.
        column: the column to measure; not used for data without columns.
        choices: for multiple choice, whose rows are lists of choices: the number of choices times the longest choice.
        weights: tokens that rows take besides these, such as those of their images: `[rows]` integers, or the name of a
            column that holds them. Of a column of grids, `image_grid_thw`, `[images, 3]` a row, these are its patches,
            t * h * w of each image; rows without the column have none.

    Returns:
        `[rows]` int64, in items (tokens, for a column of token ids).

    Raises:
        TypeError: when the dataset cannot be indexed by row (an `IterableDataset`, a `DatasetDict`), or a row is null,
            not a list, or (without `choices`) a list of rows or mappings; the message names the row.
        ValueError: when the column is missing, or rows are computed when they are read (`with_transform`); when there
            are more or fewer `weights` than rows, or one is negative.

    Examples:
        >>> import quadrat
        >>> quadrat.lengths([{"input_ids": [5, 6, 7]}, {"input_ids": []}])
        array([3, 0])
        >>> quadrat.lengths([{"input_ids": [[5, 6, 7], [8]]}, {"input_ids": [[5], [6]]}], choices=True)
        array([6, 2])
    """
    if weights is not None:
        rows = dataset if type(dataset) is list and all(isinstance(row, Mapping) for row in dataset) else ()
        if isinstance(weights, str) and any(weights in row for row in rows):
            weights = [row.get(weights) for row in rows]
        parts = parts_of(dataset, (weights,)) if isinstance(weights, str) else [[weights]]
        return weighted(lengths(dataset, column, choices=choices), parts)
    if choices:
        return tokens_in_batches(parts_of(dataset, (column,)), choices=True)
    if isinstance(dataset, (list, tuple)):
        return measure(dataset, len(dataset), column, bare=True)
    torch = sys.modules.get("torch.utils.data")
    if torch is not None and isinstance(dataset, torch.Dataset) and hasattr(dataset, "__len__"):
        return _of_items(dataset, column)
    if (pyarrow := sys.modules.get("pyarrow")) is not None and isinstance(dataset, pyarrow.Table):
        return _of_arrow(dataset, column)
    return _of_other(dataset, column)


def weighted(sizes: IntArray, parts: Iterable[list[Any]]) -> IntArray:
    """Lengths and weights together. A part has the weights of some rows. Raises TypeError or ValueError."""
    weights: IntArray = np.concatenate([sizes[:0], *(as_lengths(_patches_of(part), "weights") for (part,) in parts)])
    require_each(weights, len(sizes), "weights")
    return sizes + weights


def _patches_of(part: Any) -> Any:
    """Weights; of rows of grids, `[images, 3]`, the patches of each row."""
    if hasattr(part, "dtype"):
        return part
    rows = part.to_pylist() if hasattr(part, "to_pylist") else list(part)
    if any(row is not None and not hasattr(row, "__len__") for row in rows):
        return np.asarray(rows)
    grids = (np.asarray([] if row is None else row, np.int64).reshape(-1, 3) for row in rows)
    return np.array([grid.prod(1).sum() for grid in grids], np.int64)


def lengths_of(source: Any, rows: int | None = None) -> IntArray:
    """Lengths as they were given, checked and copied; of a dataset, those of its rows. rows: how many there must be."""
    if isinstance(source, (list, tuple)):
        holds_rows = len(source) > 0 and isinstance(source[0], (Mapping, list, tuple))
    else:
        holds_rows = isinstance(source, Mapping) or bool(getattr(source, "column_names", None))
    sizes = as_lengths(lengths(source) if holds_rows else source)
    if rows is not None:
        require_each(sizes, rows)
    return sizes


def _of_other(dataset: Any, column: str) -> IntArray:
    datasets: Any = sys.modules.get("datasets")
    if type(dataset) is getattr(datasets, "Column", ()):  # `dataset["input_ids"]`
        if not isinstance(dataset.source, datasets.Dataset):
            return measure(dataset, len(dataset), column, values=True)
        dataset, column = dataset.source, dataset.column_name
    if _is_stored(dataset):
        _require_stored(dataset, column)
        stored = _list_lengths(dataset.data.table.column(column), column)
        indices = dataset._indices
        return _without_nulls(stored if indices is None else stored[indices.table.column(0).to_numpy()], column)
    if datasets is not None and isinstance(dataset, (datasets.DatasetDict, datasets.IterableDatasetDict)):
        raise TypeError(f"a {type(dataset).__name__} has no rows of its own: give one of {list(dataset)}")
    if isinstance(dataset, Mapping):
        if column not in dataset:
            raise _missing(column, dataset)
        return _of_column(dataset[column], column)
    if isinstance(dataset, Ragged) or is_tensor(dataset) or isinstance(dataset, np.ndarray) or is_arrow(dataset):
        return _of_column(dataset, column)
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise TypeError(
            f"{type(dataset).__name__} cannot be indexed by row, so its rows cannot be measured before they are read: "
            "give a dataset with `len` and `[]`"
        )
    return _of_items(dataset, column)


def measure(items: Iterable[Any], count: int, column: str, *, bare: bool = False, values: bool = False) -> IntArray:
    """The lengths of items, or of their values in a column."""
    # bare: rows may come without a mapping around them; values: none has one.
    sizes, first, known = np.empty(count, np.int64), 0, interop()
    name, bare = (None, True) if values else (column, bare)
    for rows in (items[:],) if type(items) is list else _chunks(items):  # in lists that nobody else holds
        if len(rows) > count - first:
            raise ValueError(f"column {column!r} has the length {count}, but gives more rows")
        row, kind, left = 0, list, sizes[first:] if first else sizes
        while (row := _core.measure_rows(rows, name, bare, kind, row, left, known)) < len(rows):
            # One of another type than those before it.
            value = rows[row] if values else _value_of(rows[row], first + row, column, bare=bare)
            left[row] = _length_of(value, first + row, column)
            row, kind = row + 1, type(value)
        first += len(rows)
    if first < count:
        raise ValueError(f"column {column!r} has the length {count}, but gives {first} rows")
    return sizes


def has_stored_lengths(dataset: Any, column: str) -> bool:
    """True if `lengths` reads from Arrow what `len(row[column])` is for each row of a dataset, which has some."""
    if not _is_stored(dataset) or not len(dataset):
        return False
    chosen = dataset.format["columns"]
    return (
        dataset.format["type"] in _ROW_FORMATS
        and column in dataset.column_names
        and (dataset.format["output_all_columns"] or column in chosen)
        and _holds_tokens(dataset.data.table.schema.field(column).type)
    )


def _is_stored(dataset: Any) -> bool:
    """True for a `datasets.Dataset` that does not read its rows in its own way."""
    original: Any = getattr(sys.modules.get("datasets"), "Dataset", ())
    reading = ("__getitem__", "_getitem", "__iter__")
    return isinstance(dataset, original) and all(
        getattr(type(dataset), name, None) is getattr(original, name, None) for name in reading
    )


def _of_items(dataset: Any, column: str) -> IntArray:
    count = len(dataset)
    if count > _ITEMS:
        return measure(itertools.chain.from_iterable(_items(dataset, count)), count, column)
    return measure([dataset[row] for row in range(count)], count, column)


def parts_of(dataset: Any, names: Sequence[str]) -> Iterator[list[Any]]:
    """Columns of some rows at a time, each a list or an Arrow array; None for one that is not there, but the first."""
    is_table = isinstance(dataset, getattr(sys.modules.get("pyarrow"), "Table", ()))
    if _is_stored(dataset):
        _require_stored(dataset, names[0])
        there = [name for name in names if name in dataset.column_names]
        read = dataset.select_columns(there).with_format("arrow").__getitem__
    elif is_table or isinstance(dataset, Mapping):
        there = dataset.column_names if is_table else list(dataset)
        if names[0] not in there:
            raise _missing(names[0], there)
        if not is_table:
            yield [dataset.get(name) for name in names]
            return
        read = lambda part: dataset.slice(part.start, _AT_A_TIME)  # noqa: E731
    else:
        for items in _items(dataset, len(dataset)):
            example = _mapping_of(items[0]) or {}
            there = [name for name in names if name in example or name == names[0]]
            columns = {name: [_value_of(item, row, name) for row, item in enumerate(items)] for name in there}
            yield [*map(columns.get, names)]
        return
    for first in range(0, len(dataset), _AT_A_TIME):
        table = read(slice(first, first + _AT_A_TIME))
        yield [table.column(name).combine_chunks() if name in there else None for name in names]


def _require_stored(dataset: Any, column: str) -> None:
    if dataset._format_type == "custom":
        raise ValueError(
            "the dataset computes its rows when they are read (with_transform, set_transform), so their lengths are "
            "not stored: tokenize with `map` first, or give `dataset.with_format(None)` if the stored column is meant"
        )
    if column not in dataset.column_names:
        raise _missing(column, dataset.column_names)


def _of_column(rows: Any, column: str) -> IntArray:
    if isinstance(rows, Ragged):
        return as_numpy(rows.lengths, "lengths")
    if (isinstance(rows, np.ndarray) or is_tensor(rows)) and rows.ndim == 2 and not getattr(rows, "is_nested", False):
        return np.full(len(rows), rows.shape[1], np.int64)
    if is_arrow(rows):
        return _of_arrow(rows, column)
    return measure(rows, len(rows), column, values=True)


def is_arrow(value: Any) -> bool:
    """True if a value is Arrow data. The chunked arrays of pyarrow 15 have no Arrow interface."""
    pyarrow = sys.modules.get("pyarrow")
    return speaks_arrow(value) or (pyarrow is not None and isinstance(value, pyarrow.ChunkedArray))


def _of_arrow(source: Any, column: str) -> IntArray:
    if sys.modules.get("pyarrow") is None:
        with needs("quadrat.lengths of Arrow data"):
            import pyarrow  # noqa: F401
    pa: Any = sys.modules["pyarrow"]
    values = source if isinstance(source, (pa.Table, pa.Array, pa.ChunkedArray)) else _imported(source)
    if isinstance(values, pa.Table):
        try:
            values = values.column(column)
        except KeyError:
            if column in values.column_names:  # more than once
                raise
            raise _missing(column, values.column_names) from None
    sizes = _list_lengths(values, column)
    return _without_nulls(sizes, column) if values.null_count else sizes


def _imported(source: Any) -> Any:
    """Arrow data of another library, or a batch of pyarrow, as a table, or an array of one column."""
    import pyarrow as pa

    if hasattr(source, "__arrow_c_stream__"):
        try:
            return pa.table(source)
        except pa.ArrowInvalid:  # a stream of one column
            return pa.chunked_array(source)
    return pa.table(source) if isinstance(source, pa.RecordBatch) else pa.array(source)


def _list_lengths(values: Any, column: str) -> IntArray:
    """The lengths of the lists of a pyarrow array, -1 where one is null."""
    import pyarrow as pa

    kind, chunks = values.type, values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    if kind.id == _EXTENSION:
        chunks = [chunk.storage for chunk in chunks]
    if not _holds_tokens(kind):
        is_list = (kind.storage_type if kind.id == _EXTENSION else kind).id in _LISTS
        why = _NO_TOKENS if is_list else "and only lists have lengths: tokenize texts first"
        raise TypeError(f"column {column!r} holds {values.type}, {why}")
    sizes = [_lengths_of_chunk(chunk) for chunk in chunks]
    return sizes[0] if len(sizes) == 1 else np.concatenate([np.empty(0, np.int64), *sizes])


def _lengths_of_chunk(values: Any) -> IntArray:
    width = _OFFSETS.get(values.type.id)
    if values.null_count or width is None or not len(values):
        import pyarrow.compute as pc

        return np.asarray(pc.fill_null(pc.list_value_length(values), -1)).astype(np.int64)
    first = values.offset
    ends = np.frombuffer(values.buffers()[1], width)[first : first + len(values) + 1]
    return (ends[1:] - ends[:-1]).astype(np.int64, copy=False)  # type: ignore[no-any-return]


def _holds_tokens(kind: Any) -> bool:
    """True for a type of lists whose items are neither lists nor mappings."""
    import pyarrow as pa

    kind = kind.storage_type if kind.id == _EXTENSION else kind
    return kind.id in _LISTS and not pa.types.is_nested(kind.value_type)


def _without_nulls(sizes: IntArray, column: str) -> IntArray:
    if sizes.size and int(sizes.min()) < 0:
        raise _null(int((sizes < 0).argmax()), column)
    return sizes


def _length_of(value: Any, row: int, column: str) -> int:
    if value is None:
        raise _null(row, column)
    try:
        if isinstance(value, (str, bytes, Mapping)):
            raise TypeError
        length = len(value)
    except TypeError:
        raise TypeError(
            f"row {row} of column {column!r} is a {type(value).__name__}, and only lists and arrays have lengths: "
            "tokenize texts first"
        ) from None
    first = next(iter(value), None)
    if isinstance(first, (list, tuple, Mapping)) or getattr(first, "ndim", 0) > 0:
        raise TypeError(
            f"row {row} of column {column!r} is a {type(value).__name__} of {type(first).__name__}s, {_NO_TOKENS}"
        )
    return length


def _mapping_of(item: Any) -> Mapping[str, Any] | None:
    """The mapping that an item is, or that it pairs with a label."""
    if type(item) in (list, tuple) and len(item) == 2 and not isinstance(item[1], Mapping):
        item = item[0]
    return item if isinstance(item, Mapping) else None


def _value_of(item: Any, row: int, column: str, *, bare: bool = False) -> Any:
    """The value of an item in the column, or the item itself where rows may come without a mapping around them."""
    mapping = _mapping_of(item)
    if mapping is not None:
        try:
            return mapping[column]
        except KeyError:
            raise _missing(column, mapping, f"row {row} has ") from None
    if not bare:
        raise TypeError(
            f"row {row} is a {type(item).__name__}, not a mapping with a column {column!r}: give the lengths of such "
            "rows yourself"
        )
    return item


def _items(dataset: Any, count: int) -> Iterator[list[Any]]:
    """The items of a dataset, many at a time, with a progress bar on a terminal, once it has taken a while."""
    with progress_bar(count, "lengths") as bar:
        for first in range(0, count, _ITEMS):
            items = [dataset[row] for row in range(first, min(first + _ITEMS, count))]
            yield items
            bar.update(len(items))


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    rest = iter(items)
    return iter(lambda: [*itertools.islice(rest, _AT_A_TIME)], [])


def _missing(column: str, names: Iterable[Any], where: str = "there are ") -> ValueError:
    return ValueError(f"no column {column!r}: {where}{list(names)}; tokenize texts first, or name the column")


def _null(row: int, column: str) -> TypeError:
    # The words of `len(None)`, which the samplers of transformers raise.
    return TypeError(f"object of type 'NoneType' has no len(): row {row} of column {column!r} is null")
