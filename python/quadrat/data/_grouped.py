"""A map-style dataset whose items are groups of another dataset's rows, planned anew for each epoch."""

import operator
import sys
from collections.abc import Sequence
from typing import Any

from quadrat.batching._epoch import WithEpoch
from quadrat.input.items import Batch
from quadrat.input.rows import Rows
from quadrat.ragged import Ragged


class GroupedDataset(WithEpoch):
    """The base of `BatchedDataset` and `PackedDataset`: an item is a group of rows of `dataset`."""

    @property
    def _settings(self) -> dict[str, Any]:
        """What the groups depend on, for checkpoints."""
        raise NotImplementedError

    def __init__(self, dataset: Any, columns: Sequence[str] | None, column: str | None = None) -> None:
        super().__init__()
        self.dataset = dataset
        self.columns = columns_of(columns, column)
        self._source = source_of(dataset, self.columns)

    def _current(self) -> Any:
        """The plan of the current epoch: a tuple that begins with the groups."""
        raise NotImplementedError

    def _items(self, plan: Any, groups: list[int]) -> list[Any]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rows={len(self.dataset)}, columns={self.columns}, epoch={self.epoch})"

    def __len__(self) -> int:
        """The number of items, the same in each epoch."""
        return len(self._current()[0])

    def __getitem__(self, index: int) -> Any:
        """One item. Raises IndexError."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several items. Raises IndexError."""
        plan, groups = self._current(), []
        count = len(plan[0])
        for index in map(operator.index, indices):
            if not -count <= index < count:
                raise IndexError(f"item {index} of {count}")
            groups.append(index % count)
        return self._items(plan, groups)

    def _rows(self, rows: list[int]) -> Any:
        """Rows of the dataset by number: `Rows` if they are in Arrow, otherwise a list."""
        source = self._source
        items = source.__getitems__(rows) if hasattr(source, "__getitems__") else [source[row] for row in rows]
        return items if type(items) is Rows else with_columns(list(items), self.columns)


def columns_of(columns: Sequence[str] | None, column: str | None = None) -> list[str] | None:
    """The columns to keep, None: all. Raises TypeError for one name, and ValueError where `column` is not kept."""
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names: give [{columns!r}]")
    if columns is None:
        return None
    if column is not None and column not in columns:
        raise ValueError(f"columns={list(columns)} must contain {column!r}, whose lengths are used")
    return list(columns)


def with_columns(rows: list[Any], columns: list[str] | None) -> list[Any]:
    """Rows with these columns alone; None: with all. Raises ValueError for a missing one."""
    if columns is None:
        return rows
    try:
        return [{name: row[name] for name in columns} for row in rows]
    except KeyError as error:
        raise ValueError(f"no column {error}: there are {list(rows[0])}") from error


def as_batch(rows: Any) -> Any:
    """Rows as an item that stands for all of them."""
    return rows if type(rows) is Rows else Batch(rows)


def source_of(dataset: Any, columns: list[str] | None) -> Any:
    """The dataset to index by row number; an `ArrowDataset` if its rows are in Arrow."""
    if isinstance(dataset, getattr(sys.modules.get("datasets"), "Dataset", ())):
        from quadrat.data.arrow import ArrowDataset

        return ArrowDataset(dataset, columns)
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")) or isinstance(dataset, (dict, Ragged)):
        raise TypeError(
            f"a {type(dataset).__name__} cannot be indexed by row: give a map-style dataset, or a list of mappings; "
            "for a stream, use quadrat.BatchedStream or quadrat.data.PackedStream"
        )
    return dataset
