"""`pack_dataset`: the rows of a dataset joined into packs, as TRL does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.batching.packing import packed, pieces_of
from quadrat.ops._philox import number_below
from quadrat.ragged.take import copy_rows
from quadrat.support.arrays import IntArray
from quadrat.support.extras import needs

AnyDataset = TypeVar("AnyDataset")

_STRATEGIES = ("bfd", "bfd_split", "wrapped")
_UNEQUAL = "All columns must have values of the same length."


def pack_dataset(
    dataset: AnyDataset,
    seq_length: int,
    strategy: Literal["bfd", "bfd_split", "wrapped"] = "bfd",
    map_kwargs: Mapping[str, Any] | None = None,
) -> AnyDataset:
    """Join the rows of a dataset into rows of at most `seq_length` tokens, as `trl.pack_dataset` does.

    The rows, their order, their types and the format are those of TRL 1.16 (`trl.data_utils`, after "Fewer Truncations
    Improve Language Modeling", 2024), which is not needed. `Dataset.map` joins the rows of each of its batches, 1,000
    by default, and writes them. Where TRL raises other errors or mixes up tokens: a dataset or a batch without tokens
    gives no rows; columns may be stored in Arrow in different ways (other chunks, or 64-bit offsets); null lists that
    cover values in only one column are refused.

    Args:
        dataset: a `datasets.Dataset`, `DatasetDict`, `IterableDataset` or `IterableDatasetDict` whose columns are all
            lists, in each row of the same length. Rows that are empty or null are dropped.
        seq_length: the maximum number of tokens in a row of the result.
        strategy: which tokens are joined.

            - "bfd": whole rows, by best-fit decreasing. A row longer than `seq_length` is cut there.
            - "bfd_split": the same, but the part that is cut off becomes separate rows.
            - "wrapped": all tokens in their order, cut every `seq_length` tokens.
        map_kwargs: more arguments of `map`, for example `batch_size`, `num_proc` or `remove_columns`.

    Returns:
        A dataset of the same kind with the same columns and format. With "bfd" and "bfd_split" it also has the column
        `seq_lengths`, of which collators make `position_ids`: for each row, the list of the lengths that were joined.

    Raises:
        TypeError: when a column does not hold lists, or `seq_length` is not an int.
        ValueError: for an unknown `strategy`, a `seq_length` below 1, or lists of different lengths in a row.
        KeyError: when the dataset has a column `seq_lengths` and the strategy makes one.

    Examples:
        >>> import datasets, quadrat
        >>> datasets.disable_progress_bars()
        >>> rows = datasets.Dataset.from_dict({"input_ids": [[1, 2, 3, 4, 5], [6, 7], [8, 9, 10], [11]]})
        >>> quadrat.batching.pack_dataset(rows, seq_length=4)[:]
        {'input_ids': [[1, 2, 3, 4], [8, 9, 10, 11], [6, 7]], 'seq_lengths': [[4], [3, 1], [2]]}
        >>> quadrat.batching.pack_dataset(rows, seq_length=4, strategy="bfd_split")[:]
        {'input_ids': [[1, 2, 3, 4], [8, 9, 10, 5], [6, 7, 11]], 'seq_lengths': [[4], [3, 1], [2, 1]]}
        >>> quadrat.batching.pack_dataset(rows, seq_length=4, strategy="wrapped")[:]
        {'input_ids': [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11]]}
    """
    if strategy not in _STRATEGIES:
        raise ValueError(f"Invalid packing strategy '{strategy}', must be one of {_STRATEGIES}.")
    options: dict[str, Any] = {"seq_length": number_below(seq_length, "seq_length", 1 << 63, 1)}
    given: Any = dataset
    chosen = _format_of(given)
    joining = _pack_wrapped if strategy == "wrapped" else _pack_bfd
    if strategy != "wrapped":
        options["on_seq_length_overflow"] = "split" if strategy == "bfd_split" else "truncate"
    joined = given.with_format("arrow").map(joining, batched=True, fn_kwargs=options, **(map_kwargs or {}))
    if strategy != "wrapped" and "columns" in chosen:
        joined = _with_lengths(joined)
        chosen["columns"] = [*chosen["columns"], "seq_lengths"]
    result: AnyDataset = joined.with_format(**chosen)
    return result


def _format_of(dataset: Any) -> dict[str, Any]:
    with needs("quadrat.batching.pack_dataset", "datasets"):
        import datasets

    if isinstance(dataset, (datasets.DatasetDict, datasets.IterableDatasetDict)):
        dataset = dataset[next(iter(dataset))]
    if isinstance(dataset, datasets.Dataset):
        chosen = dict(dataset.format)
    else:
        chosen = {"type": None if dataset._formatting is None else dataset._formatting.format_type}
    chosen.update(chosen.pop("format_kwargs", {}))
    return chosen


def _with_lengths(dataset: Any) -> Any:
    """The same dataset, with the column that `map` does not make for a dataset without rows."""
    import datasets
    import pyarrow as pa

    if isinstance(dataset, datasets.DatasetDict):
        return datasets.DatasetDict({name: _with_lengths(split) for name, split in dataset.items()})
    if len(dataset) or "seq_lengths" in dataset.column_names:
        return dataset
    wide = any(isinstance(feature, datasets.LargeList) for feature in dataset.features.values())
    return dataset.add_column("seq_lengths", pa.array([], pa.list_(pa.int64() if wide else pa.int32())))


# These two have TRL's names and parameters: `map` may pass more arguments, and the error names both.


def _pack_bfd(examples: Any, seq_length: int, on_seq_length_overflow: str = "truncate") -> Any:
    """The rows of a `pyarrow.Table`, joined by best-fit decreasing, and `seq_lengths`."""
    import pyarrow as pa

    columns, extents, filled = _lists(examples)
    if "seq_lengths" in examples.column_names:
        raise KeyError('Field "seq_lengths" exists 2 times in schema')
    if any((filled[0] & ~other).any() for other in filled[1:]):
        raise ValueError(_UNEQUAL)
    numbers, starts, sizes = pieces_of(extents, seq_length, "split")
    kept = filled[0] if numbers is None else filled[0][numbers]
    if on_seq_length_overflow == "truncate" and starts is not None:
        kept &= starts == 0
    places = np.flatnonzero(kept)
    most = min(seq_length, max(int(sizes[places].sum()), 1))  # one pack holds all
    if most > _core.MOST_IN_PACK:
        raise ValueError(f"seq_length must be at most {_core.MOST_IN_PACK} for so many tokens, not {seq_length}")
    order, packs = packed(sizes[places], most, _core.FITS.BEST)
    places = places[order]
    bounds, ends = _bounds(sizes), _bounds(sizes[places])[packs]
    values = [_values_at(column, bounds, places, int(ends[-1])) for column in columns]
    made = [type(column).from_arrays(ends, items) for column, items in zip(columns, values, strict=True)]
    made.append(pa.ListArray.from_arrays(packs, pa.array(sizes[places], columns[0].offsets.type)))
    return pa.Table.from_arrays(made, names=[*examples.column_names, "seq_lengths"])


def _pack_wrapped(examples: Any, seq_length: int) -> Any:
    """The rows of a `pyarrow.Table`, joined and cut every `seq_length` tokens."""
    import pyarrow as pa

    columns, _, filled = _lists(examples)
    if any(not np.array_equal(filled[0], other) for other in filled[1:]):
        raise ValueError(_UNEQUAL)
    values = [column.flatten() for column in columns]
    ends = np.append(np.arange(0, len(values[0]), min(seq_length, max(len(values[0]), 1))), len(values[0]))
    made = [type(column).from_arrays(ends, items) for column, items in zip(columns, values, strict=True)]
    return pa.Table.from_arrays(made, names=examples.column_names)


def _lists(examples: Any) -> tuple[list[Any], IntArray, list[NDArray[np.bool_]]]:
    """The columns, how many values each row lies on, and for each column which rows have values, as null has none."""
    import pyarrow as pa

    columns = [column.chunk(0) for column in examples.combine_chunks().columns]
    extents: Any = None
    for column in columns:
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            raise TypeError("Packing requires all columns to be lists of lists.")
        found = np.diff(np.asarray(column.offsets).astype(np.int64))
        if extents is not None and not np.array_equal(found, extents):
            raise ValueError(_UNEQUAL)
        extents = found
    some = extents > 0
    filled = [np.asarray(column.is_valid()) & some if column.null_count else some for column in columns]
    return columns, extents, filled


def _values_at(column: Any, bounds: IntArray, places: IntArray, total: int) -> Any:
    """The `total` values of a column's pieces at `places`, in this order; `bounds` cut the column into pieces."""
    import pyarrow as pa

    values = column.values.slice(column.offsets[0].as_py(), int(bounds[-1]))
    if values.null_count or not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return type(column).from_arrays(bounds, values).take(pa.array(places)).flatten()
    return pa.array(copy_rows(values.to_numpy(), bounds, places, total))


def _bounds(sizes: IntArray) -> IntArray:
    return np.append(0, np.cumsum(sizes))
