"""`patch_datasets`: batches of a `datasets.Dataset` in a DataLoader stay in Arrow until they are read."""

import contextlib
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from quadrat.data.arrow import StoredRows, original_getitem, original_getitems, reads_as_datasets
from quadrat.data.iterable import in_arrow
from quadrat.integration.switch import Patch, Swap, Switch
from quadrat.support.extras import needs

with needs("quadrat.data.patch_datasets", "datasets"):
    import datasets

# Kept outside the dataset: attributes of a dataset are pickled, and are part of fingerprints.
_stored: WeakKeyDictionary[Any, StoredRows] = WeakKeyDictionary()


def patch_datasets() -> Patch:
    """Make each `Dataset` and `IterableDataset` of `datasets` in this process leave its rows in Arrow.

    A batch that a DataLoader fetches (`Dataset.__getitems__`) refers to rows in Arrow, and quadrat's collators write
    its tensors from there, as with `ArrowDataset`. Other code gets what it always gets: a list of dicts in the
    dataset's format, made on first access, whose edits are collated. C code that reads the memory of lists, such as
    `json.dumps`, raises an error: give it `list(rows)`. A row, `dataset[3]`, of numbers, texts and lists of them is
    read in compiled code too, if the dataset has no format. Nothing else changes.

    A row of an `IterableDataset` is a dict whose values are made when one of them is read. The order, epochs, shuffle
    buffers, `state_dict` and resuming are those of `datasets`. Rows that `datasets` makes one by one are plain dicts
    as before: after `map`, `filter` or `select_columns`, with a format or decoded features, or interleaved in runs of
    fewer than 8 rows of a shard; and for a while after other code has read a row.

    Datasets with a transform, with features that are decoded (images, audio), in formats other than None, "python",
    "numpy" and "torch", and subclasses that read rows in their own way are read by `datasets` itself. The patch is
    undone like that of `quadrat.patch`.

    Examples:
        >>> import datasets, quadrat
        >>> dataset = datasets.Dataset.from_dict({"input_ids": [[5, 6], [7]]})
        >>> with quadrat.data.patch_datasets():
        ...     batch = dataset.__getitems__([1, 0])
        >>> batch
        Rows(2 rows, columns ['input_ids'])
        >>> list(batch)
        [{'input_ids': [7]}, {'input_ids': [5, 6]}]
    """
    return Patch("data.patch_datasets", DATASETS)


def _rows_of(dataset: Any, stored: StoredRows | None) -> StoredRows | None:
    """The reader of rows in place of `datasets`, the last one if it holds; None where `datasets` reads them."""
    if not reads_as_datasets(dataset, _getitem, dataset._format_type):
        return None
    if stored is None or not stored.is_of(dataset):
        stored = _stored[dataset] = StoredRows(dataset, formatted=True)
    return stored


def _getitems(self: Any, keys: Sequence[int]) -> Any:
    if (known := _stored.get(self)) is None or not known.skips_batch():
        try:
            stored = _rows_of(self, known) if len(keys) else None
            if stored is not None and min(keys) >= 0 and (rows := stored.rows(keys)) is not None:
                return rows
        except (IndexError, TypeError, ValueError):  # `datasets` reads a slice, say, and raises its own error
            pass
    return original_getitems(self, keys)


def _getitem(self: Any, key: Any) -> Any:
    if type(key) is not int or self._format_type is not None:
        try:
            return original_getitem(self, key)
        except Exception as error:
            from quadrat.planning.fallback import reraise_with_hint  # which imports transformers

            reraise_with_hint(error, _null_among(self, key) if "'NoneType' object" in str(error) else None)
    if ((known := _stored.get(self)) is None or not known.skips_row()) and 0 <= key < 2**63:
        stored = _rows_of(self, known)
        try:
            if stored is not None and (row := stored.row(key)) is not None:
                return row
        except IndexError:  # `datasets` raises its own error
            pass
    return original_getitem(self, key)


def _null_among(dataset: Any, keys: Any) -> str | None:
    """Which of several rows in a format of arrays is null where lists are read, with what to do."""
    if dataset._format_type is None or isinstance(keys, (int, str)):
        return None
    with contextlib.suppress(Exception):  # the error stands alone
        stored = dataset.with_format("arrow")
        for row in range(len(dataset))[keys] if isinstance(keys, slice) else keys:
            for name, column in zip(dataset.column_names, stored[int(row)].columns, strict=True):
                if column.null_count and column.type.num_fields and name in (dataset._format_columns or (name,)):
                    return f"column {name!r}, row {row} is null; give the row a value, or filter it out"
    return None


# Not in all versions of `datasets`.
_original_prepare = getattr(datasets.IterableDataset, "_prepare_ex_iterable_for_iteration", None)


def _prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
    return in_arrow(_original_prepare(self, *args, **kwargs))  # type: ignore[misc]


def _swaps() -> list[Swap]:
    swaps = [Swap(original_getitems, _getitems), Swap(original_getitem, _getitem)]
    return swaps if _original_prepare is None else [*swaps, Swap(_original_prepare, _prepare)]


DATASETS = Switch(_swaps, others=lambda: [datasets.Dataset, datasets.IterableDataset])
