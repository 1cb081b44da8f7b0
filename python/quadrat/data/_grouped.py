"""A map-style dataset whose items are groups of another dataset's rows, planned anew for each epoch."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quadrat.input.items import Batch
from quadrat.input.rows import Rows
from quadrat.ops._philox import epoch_of
from quadrat.ragged import Ragged
from quadrat.support.shared import shared_number

IntArray = NDArray[np.int64]


class GroupedDataset:
    """What `BatchedDataset` and `PackedDataset` share: an item is a group of rows of `dataset`."""

    def __init__(self, dataset: Any, columns: Sequence[str] | None) -> None:
        if isinstance(columns, str):
            raise TypeError(f"columns must be a list of names: give [{columns!r}]")
        self.dataset = dataset
        self.columns = None if columns is None else list(columns)
        self._source = _source_of(dataset, self.columns)
        self._epoch = shared_number()
        self._planned: tuple[int, Any] | None = None

    def _plan(self, epoch: int) -> Any:
        """The groups of an epoch, each with the arguments of `_items`."""
        raise NotImplementedError

    def _items(self, plan: Any, groups: list[int]) -> list[Any]:
        """The items of some groups."""
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        """The current epoch; see `set_epoch`."""
        return int(self._epoch[()])

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the items from now on, also in worker processes of a DataLoader.

        Raises:
            TypeError, ValueError: unless it is a whole number below `2**32`.
        """
        self._epoch[()] = epoch_of(epoch)

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

    def _current(self) -> Any:
        epoch, planned = self.epoch, self._planned
        if planned is None or planned[0] != epoch:
            planned = self._planned = (epoch, self._plan(epoch))
        return planned[1]

    def _rows(self, rows: list[int]) -> Any:
        """Rows of the dataset by number: `Rows` if they are in Arrow, otherwise a list."""
        source = self._source
        if hasattr(source, "__getitems__"):
            found = source.__getitems__(rows)
            found = found if type(found) is Rows else list(found)
        else:
            found = [source[row] for row in rows]
        if self.columns is None or type(found) is Rows:
            return found
        try:
            return [{name: row[name] for name in self.columns} for row in found]
        except KeyError as error:
            raise ValueError(f"no column {error}: there are {list(found[0])}") from error


def as_batch(rows: Any) -> Any:
    """Rows as an item that stands for all of them."""
    return rows if type(rows) is Rows else Batch(rows)


def _source_of(dataset: Any, columns: list[str] | None) -> Any:
    """The dataset to index by row number; an `ArrowDataset` if its rows are in Arrow."""
    datasets = sys.modules.get("datasets")
    if datasets is not None and isinstance(dataset, datasets.Dataset):
        from quadrat.data.arrow import ArrowDataset

        return ArrowDataset(dataset, columns)
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")) or isinstance(dataset, (dict, Ragged)):
        raise TypeError(
            f"a {type(dataset).__name__} cannot be indexed by row: give a map-style dataset, or a list of mappings; "
            "for a stream, use quadrat.BatchedStream or quadrat.PackedStream"
        )
    return dataset
