"""`ArrowDataset`: a `datasets.Dataset` whose batches stay in Arrow until they become tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from quadrat import _core
from quadrat.input.rows import Rows, table_of_arrow
from quadrat.support.extras import needs

with needs("quadrat.data.arrow", "datasets"):
    import datasets


class ArrowDataset(datasets.Dataset):  # type: ignore[misc]
    """A `datasets.Dataset` that hands its batches to quadrat's collators as they lie in Arrow.

    It is the dataset it was made from, with the same rows, columns, format and methods, and takes its place in
    `torch.utils.data.DataLoader`, in `Trainer` (which removes the columns the model does not take) and in worker
    processes. A batch, `ds.__getitems__([3, 1, 2])`, refers to rows, which are gathered when a collator of quadrat's
    writes its tensors. To other code, such as a collate function of your own that changes the features first, it is the
    list of dicts that `datasets.Dataset` gives. The dataset may be memory-mapped or in memory, concatenated, read from
    parquet, and have an indices mapping. Methods that choose or order rows or columns return an `ArrowDataset` again.

    Rows come as Python numbers and lists would, whatever `with_format` says of their type; its choice of columns is
    kept. With a transform (`set_transform`) batches are those of `datasets.Dataset`.

    Args:
        dataset: a `datasets.Dataset`, which is left as it is.
        columns: the columns to keep; by default all of them.

    Raises:
        TypeError: when `dataset` is not a `datasets.Dataset`.
        ValueError: when one of `columns` is not there.
    """

    def __init__(self, dataset: datasets.Dataset, columns: Sequence[str] | None = None) -> None:
        if not isinstance(dataset, datasets.Dataset):
            raise TypeError(
                f"ArrowDataset takes a datasets.Dataset, not {type(dataset).__name__}: give one split of a DatasetDict;"
                " an IterableDataset has no rows to refer to"
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
        seen = self.__dict__.get("_quadrat_seen")
        # By identity, one by one: a batch is fetched when the caches hold something else.
        if (
            seen is None
            or seen[2] is not self._data
            or seen[3] is not self._indices
            or seen[4] is not self._format_columns
            or seen[5] is not self._format_type
            or seen[6] is not self._output_all_columns
        ):
            if self._format_type == "custom":
                return super().__getitems__(keys)
            seen = self._look()
        return Rows(seen[0], keys, seen[1])

    def __getstate__(self) -> dict[str, Any]:
        """The dataset's own state: another process finds its memory anew."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_quadrat")}

    def _look(self) -> tuple[Any, ...]:
        """Table and mapping of the rows, and what they were made from."""
        arrow = self._data.table
        if self._format_columns is not None and not self._output_all_columns:
            arrow = arrow.select([name for name in arrow.column_names if name in self._format_columns])
        mapping = None if self._indices is None else _core.arrow_columns(self._indices.table)[1][0]
        of = (self._data, self._indices, self._format_columns, self._format_type, self._output_all_columns)
        seen = self.__dict__["_quadrat_seen"] = (table_of_arrow(arrow), mapping, *of)
        return seen


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
