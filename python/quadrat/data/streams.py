"""`BatchedStream` and `PackedStream`: iterable datasets of whole batches, and of packs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from quadrat.batching._epoch import GROUPS, ROWS, random_order
from quadrat.batching.budget import Budget, attention_of, ragged_of
from quadrat.batching.packing import Packing, Strategy
from quadrat.data._grouped import as_batch
from quadrat.data._streamed import StreamedDataset, StreamOptions, Units
from quadrat.input.items import Pack, packs_of
from quadrat.input.rows import MAIN
from quadrat.ragged import Ragged
from quadrat.support.arrays import IntArray


class BatchedStream(StreamedDataset):
    """An iterable dataset whose items are whole batches of a stream's rows, each of which costs at most `max_tokens`.

    A window of rows is held in memory and put into batches as by a `TokenBudgetBatchSampler`. The least-full batch of a
    window is held back: its rows go into the next window. A row is held back at most once, and is in exactly one batch
    of an epoch.

    Items are lists of rows, and quadrat's collators make the batch of one item. Rows that a `datasets.IterableDataset`
    has in Arrow stay there until one of the item is read:

        DataLoader(stream, batch_size=None, collate_fn=collator)
        Trainer(train_dataset=stream, data_collator=collator, args=...)  # per_device_train_batch_size=1, max_steps=...

    Worker processes and ranks each read their own rows, and the batches depend on how many there are. A
    `datasets.IterableDataset` gives them its shards: with fewer, some have nothing to do. Of another dataset, each
    process reads all rows and keeps every n-th.

    Ranks may have different numbers of batches, and DistributedDataParallel waits for all ranks: use its `join`
    context, stop after steps that all ranks have, or use `TokenBudgetBatchSampler`. With accelerate and Trainer, leave
    `world_size=1` and set `dispatch_batches=False`
    (`TrainingArguments(accelerator_config={"dispatch_batches": False})`): each rank then reads the whole stream and
    takes batches in turn, and the last step repeats some if there are too few.

    Resuming is exact. Rows up to that position are read again, but for a `datasets.IterableDataset` without shuffle
    buffer.

    Args:
        dataset: a `datasets.IterableDataset`, a torch `IterableDataset`, any iterable of mappings that can be read
            again, or a function that returns an iterator.
        max_tokens, padded, max_batch_size, multiple_of, overlong: see `TokenBudgetBatchSampler`.
        window: how many rows are read at a time; several batches, so that enough rows are of about the same length.
        shuffle: whether rows of about the same length, and the batches of a window, come in random order. Rows do not
            leave their window: shuffle the dataset too.
        seed: from 0 to `2**64 - 1`. The order depends on it, the epoch, the process, and the number of the window.
        column: the column whose lengths are used.
        columns: the columns to keep, `column` among them; by default all.
        world_size, rank: how many ranks share the rows, and which one this is.
        shards_itself: for a dataset that is not from `datasets`: whether its iterator gives each process its own rows.
        attention: see `TokenBudgetBatchSampler`; the rows of median length are those of each window.
        weights: a column of integers, tokens that a row takes besides its own; or of grids, `image_grid_thw`: see
            `quadrat.lengths`.

    Raises:
        TypeError: when a dataset has no rows, or can be read only once (a generator instead of its function); when it
            is read, if a row is not a mapping, or its `column` is null or not a list.
        ValueError: for an argument out of range; when it is read, for a missing column, or a row above the budget.

    Examples:
        >>> import quadrat
        >>> rows = [{"input_ids": [5] * length} for length in (5, 3, 8, 2, 6)]
        >>> stream = quadrat.BatchedStream(rows, max_tokens=16, shuffle=False)
        >>> [[len(row["input_ids"]) for row in batch] for batch in stream]
        [[8, 6], [5, 3, 2]]
    """

    _OVERLONG = ("error", "alone")
    _advice = "overlong='alone' makes such a row a batch of its own"

    def __init__(
        self,
        dataset: Any,
        max_tokens: int,
        *,
        padded: bool = True,
        max_batch_size: int | None = None,
        multiple_of: int = 1,
        window: int = 2048,
        shuffle: bool = True,
        seed: int = 0,
        column: str = MAIN,
        columns: Sequence[str] | None = None,
        overlong: Literal["error", "alone"] = "error",
        world_size: int = 1,
        rank: int = 0,
        shards_itself: bool = False,
        attention: Any = None,
        weights: str | None = None,
    ) -> None:
        self._attention = attention_of(attention)
        self._budget = budget = Budget.of(max_tokens, padded, max_batch_size, multiple_of)
        limit = budget.tokens // budget.multiple_of * budget.multiple_of
        rows = limit, overlong, column, window, shuffle, seed, world_size, rank, shards_itself, weights or ""
        plan = {"budget": self._budget, "attention": self._attention}
        super().__init__(dataset, columns, StreamOptions(*rows), **plan)

    def _plan(self, sizes: IntArray, seed: int) -> tuple[Ragged, list[int]]:
        count, shuffle = len(sizes), self._options.shuffle
        rows = random_order(count, seed, 0, ROWS) if shuffle else np.arange(count)
        costs, budget = self._budget.priced(self._attention, sizes)
        batches = budget.batched(costs, rows, count)
        order = random_order(len(batches), seed, 0, GROUPS) if shuffle else None
        steps = budget.balanced(costs, rows, batches, ranks=1, steps=len(batches), order=order)
        groups = ragged_of(rows, steps[:, 0])
        return groups, [int(_shares_of(budget, costs[groups.values], groups).argmin())]

    def _items(self, units: Units, groups: Ragged) -> Iterator[Any]:
        return (as_batch(units.rows(numbers)) for numbers in groups)


def _shares_of(budget: Budget, sizes: IntArray, groups: Ragged) -> Any:
    """How much of the budget each batch uses up, 1 for all of it."""
    tokens, most, multiple, padded = budget
    rows = np.diff(groups.offsets)
    widths = (np.maximum if padded else np.add).reduceat(sizes, groups.offsets[:-1])
    widths = -(-widths // multiple) * multiple
    return np.maximum((widths * rows if padded else widths) / tokens, rows / most)


class PackedStream(StreamedDataset):
    """An iterable dataset of packs: rows of a stream, joined to at most `max_length` tokens.

    Its items are those of `PackedDataset`. A window of rows is held in memory and packed. The least-full pack of a
    window is held back: its rows go into the next window. A row is held back at most once, and is in exactly one pack
    of an epoch, like each piece with `overlong="split"`.

        DataLoader(stream, batch_size=8, collate_fn=quadrat.DataCollatorWithFlattening())

    Args:
        dataset, seed, world_size, rank, shards_itself: see `BatchedStream`, also for workers, ranks and resuming.
        max_length: the maximum number of tokens in a pack.
        strategy: which pack a row goes into, see `quadrat.batching.plan_packs`. "in_order" leaves rows in their order:
            the last pack of a window is the one that continues in the next.
        window: how many rows are read at a time. A larger window fills packs better.
        shuffle: whether rows of equal length are exchanged at random, and the packs of a window are in random order.
        column, columns, overlong: see `PackedDataset`.

    Raises:
        TypeError: see `BatchedStream`; when it is read, if a column does not hold rows of numbers.
        ValueError: see `BatchedStream`; when it is read, if a row's columns differ in length.

    Examples:
        >>> import quadrat
        >>> rows = [{"input_ids": [length] * length} for length in (5, 3, 8, 2, 6)]
        >>> stream = quadrat.data.PackedStream(rows, max_length=8, shuffle=False)
        >>> [(pack["input_ids"].tolist(), pack["seq_lengths"].tolist()) for pack in stream]
        [([8, 8, 8, 8, 8, 8, 8, 8], [8]), ([6, 6, 6, 6, 6, 6, 2, 2], [6, 2]), ([5, 5, 5, 5, 5, 3, 3, 3], [5, 3])]
    """

    _OVERLONG = ("error", "truncate", "split")
    _advice = "overlong='truncate' cuts such rows, 'split' packs them in pieces"

    def __init__(
        self,
        dataset: Any,
        max_length: int,
        *,
        strategy: Strategy = "best_fit",
        window: int = 2048,
        shuffle: bool = True,
        seed: int = 0,
        column: str = MAIN,
        columns: Sequence[str] | None = None,
        overlong: Literal["error", "truncate", "split"] = "error",
        world_size: int = 1,
        rank: int = 0,
        shards_itself: bool = False,
    ) -> None:
        self._packing = Packing.of(max_length, strategy)
        limit = self._packing.max_length
        options = StreamOptions(limit, overlong, column, window, shuffle, seed, world_size, rank, shards_itself)
        super().__init__(dataset, columns, options, packing=self._packing)

    def _plan(self, sizes: IntArray, seed: int) -> tuple[Ragged, list[int]]:
        order = (seed, 0) if self._options.shuffle else None
        packs = self._packing.packs(sizes, order).rows
        fullness = np.add.reduceat(sizes[packs.values], packs.offsets[:-1])
        emptiest = len(packs) - 1 if self._packing.strategy == "in_order" else int(fullness.argmin())
        if order is None:
            return packs, [emptiest]
        places = random_order(len(packs), *order, GROUPS)
        return packs[places], [int((places == emptiest).argmax())]

    def _items(self, units: Units, groups: Ragged) -> list[Pack]:
        pieces = units.pieces.at(groups.values)
        return packs_of(units.rows(groups.values), self._options.column, pieces, groups.offsets)
