"""`BatchedDataset`: a map-style dataset whose items are whole batches."""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from quadrat.batching.token_budget import TokenBudgetBatchSampler
from quadrat.data._grouped import GroupedDataset, as_batch
from quadrat.ragged import Ragged
from quadrat.support.arrays import as_numpy


class BatchedDataset(GroupedDataset):
    """A map-style dataset whose item `i` holds the rows of batch `i` of a batch sampler.

    Give the DataLoader `batch_size=1`, or Trainer `per_device_train_batch_size=1`, and one of quadrat's collators,
    which makes the batch from the item's rows; for another collate function write `lambda items: collate(items[0])`.
    Rows of a `datasets.Dataset` stay in Arrow until they become tensors.

        sampler = quadrat.TokenBudgetBatchSampler(quadrat.lengths(dataset), max_tokens=16384)
        Trainer(
            train_dataset=quadrat.data.BatchedDataset(dataset, sampler),
            data_collator=collator,
            args=TrainingArguments(..., per_device_train_batch_size=1),
            callbacks=[quadrat.SetEpochCallback()],
        )

    The callback sets the dataset's epoch, which accelerate does not do with several processes or in an epoch that is
    resumed in the middle: batches would be those of epoch 0, and some rows come twice.

    Args:
        dataset: a `datasets.Dataset`, or any dataset with `len` and `[]`, or a list.
        sampler: a `TokenBudgetBatchSampler`, which gives the batches of each epoch; or the same batches for all epochs:
            a `Ragged` of row numbers, as `quadrat.batching.plan_packs` returns it, or lists of row numbers, which are
            read once. With several processes, give the sampler `world_size` and `rank=None`, for as many batches in
            each.
        columns: the columns to keep; by default all. Trainer does not remove columns from batches.

    Raises:
        TypeError: when the dataset cannot be indexed by row (an `IterableDataset`), or row numbers are not integers.
        ValueError: when a row number is out of range or a batch is empty, for a missing column, and for a sampler of
            one rank out of several, or of another number of rows than the dataset has.

    Examples:
        >>> import quadrat
        >>> rows = [{"input_ids": [5] * length} for length in (5, 3, 8, 2, 6)]
        >>> sampler = quadrat.TokenBudgetBatchSampler(quadrat.lengths(rows), max_tokens=16, shuffle=False)
        >>> batches = quadrat.data.BatchedDataset(rows, sampler)
        >>> len(batches), [len(row["input_ids"]) for row in batches[0]]
        (2, [8, 6])
    """

    def __init__(
        self,
        dataset: Any,
        sampler: TokenBudgetBatchSampler | Ragged | Iterable[Sequence[int]],
        *,
        columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(dataset, columns)
        if isinstance(sampler, TokenBudgetBatchSampler):
            if sampler.world_size > 1 and sampler.rank is not None:
                raise ValueError(
                    "the sampler gives the batches of one rank only, and accelerate would divide them again: "
                    "give it rank=None"
                )
        else:
            if not isinstance(sampler, Ragged):
                rows = [list(batch) for batch in sampler]
                sampler = Ragged.from_rows(rows) if rows else Ragged(np.empty(0, np.int64), np.zeros(1, np.int64))
            self._check(sampler)
        self.sampler = sampler
        self._require_rows()

    @property
    def _settings(self) -> dict[str, Any]:
        if isinstance(self.sampler, Ragged):
            return {"batches": zlib.crc32(str(self.sampler.to_lists()).encode())}
        return self.sampler._settings

    def _check(self, batches: Ragged) -> None:
        values, sizes = as_numpy(batches.values, "row numbers"), as_numpy(batches.lengths, "lengths")
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise TypeError(f"row numbers must be integers, not {values.dtype}")
        if not len(sizes) or not sizes.all():
            what = f"batch {int((sizes == 0).argmax())} has no rows" if len(sizes) else "there are no batches"
            raise ValueError(f"{what}: at least one is needed")
        first, last, _ = batches.facts
        wrong = (values[first:last] < 0) | (values[first:last] >= len(self.dataset))
        if wrong.any():
            raise ValueError(f"row {values[first:last][wrong.argmax()]} is out of range: there are {len(self.dataset)}")

    def _current(self) -> tuple[Ragged]:
        if isinstance(self.sampler, Ragged):
            return (self.sampler,)
        self._require_rows()  # a list may have become longer or shorter
        return (self.sampler._share(self.epoch),)

    def _require_rows(self) -> None:
        """Raises ValueError if a sampler has other rows."""
        if isinstance(self.sampler, TokenBudgetBatchSampler) and self.sampler.rows != (rows := len(self.dataset)):
            raise ValueError(f"the sampler has {self.sampler.rows} rows, but the dataset has {rows}")

    def _items(self, plan: tuple[Ragged], groups: list[int]) -> list[Any]:
        return [as_batch(self._rows(plan[0][group].tolist())) for group in groups]
