"""`ArrowDataset`: a `datasets.Dataset` whose batches stay in Arrow until they become tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from quadrat.support.extras import needs

with needs("quadrat.data.arrow", "datasets"):
    import datasets

    from quadrat.data.stored import StoredRows, reads_as_datasets


class ArrowDataset(datasets.Dataset):  # type: ignore[misc]
    """A `datasets.Dataset` whose batches quadrat's collators read directly from Arrow.

    It has the rows, columns, format and methods of the dataset it was made from, in whose place it goes into a
    DataLoader or Trainer (which removes the columns that the model does not take). A batch,
    `ds.__getitems__([3, 1, 2])`, only refers to rows: a collator of quadrat reads them when it writes its tensors, and
    for other code it is the list of dicts that `datasets.Dataset` gives. Methods that choose or order rows or columns
    return an `ArrowDataset` again.

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
        super().__init__(
            chosen._data,
            info=chosen.info,
            split=chosen.split,
            indices_table=chosen._indices,
            fingerprint=chosen._fingerprint,
        )
        self._format_type = chosen._format_type
        self._format_kwargs = chosen._format_kwargs
        self._format_columns = chosen._format_columns
        self._output_all_columns = chosen._output_all_columns

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
