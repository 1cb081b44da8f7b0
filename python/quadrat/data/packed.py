"""`PackedDataset`: a map-style dataset of packs, which are joined when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from quadrat.batching._epoch import GROUPS, random_order, settings_of
from quadrat.batching.lengths import lengths as measured
from quadrat.batching.lengths import lengths_of
from quadrat.batching.packing import Packing, Packs, Strategy
from quadrat.data._grouped import GroupedDataset
from quadrat.input.items import Pack, packs_of
from quadrat.input.rows import MAIN
from quadrat.ops._philox import seed_of
from quadrat.support.arrays import IntArray


class _Plan(NamedTuple):
    """All that the packs of an epoch depend on besides its number."""

    packing: Packing
    lengths: IntArray
    shuffle: bool
    seed: int


class PackedDataset(GroupedDataset):
    """A map-style dataset whose item `i` is pack `i`: rows of another dataset, joined to at most `max_length` tokens.

    Rows are read and joined when an item is read; nothing is written to disk. An item is a mapping with each column
    joined to one array, and with `seq_lengths`, the length of each row in it. quadrat's collators take a list of items:

    - `DataCollatorWithFlattening`, and those with `padding_free=True`, join all rows of all packs, and keep them apart
      in `position_ids`, `cu_seq_lens_q` and `seq_idx`; rows without tokens are left out.
    - The others pad each pack like a row; `pad_values={"seq_lengths": 0}` pads the lengths too.

    Args:
        dataset: a `datasets.Dataset`, or any dataset with `len` and `[]` whose items are mappings, or a list of them.
        max_length: the maximum number of tokens in a pack.
        strategy: which pack a row goes into, see `quadrat.batching.plan_packs`. "in_order" leaves rows in their order.
        column: the column whose lengths are used.
        columns: the columns to keep, `column` among them; by default all. Each has one number per token.
        overlong: "error" raises ValueError for a row above `max_length`; "truncate" cuts it; "split" packs it in
            pieces.
        lengths: `[rows]` integers, the lengths if they are known; by default `quadrat.lengths(dataset, column)`.
        shuffle: whether rows of equal length are exchanged at random, and packs are in random order, which depend on
            `seed` and the epoch alone. The number of packs is the same in each epoch.
        seed: from 0 to `2**64 - 1`.
        counts, max_count: a second limit of a pack, see `quadrat.batching.plan_packs`.

    Raises:
        TypeError: when the dataset cannot be indexed by row (an `IterableDataset`); when a pack is read, if a column
            does not hold rows of numbers.
        ValueError: when there are no rows, one is too long, or a column is missing; when a pack is read, if a row's
            columns differ in length, or its length is not that in `lengths`.

    Examples:
        >>> import quadrat
        >>> rows = [{"input_ids": [length] * length} for length in (5, 3, 8, 2, 6)]
        >>> packs = quadrat.PackedDataset(rows, max_length=8, shuffle=False)
        >>> [(pack["input_ids"].tolist(), pack["seq_lengths"].tolist()) for pack in packs]
        [([8, 8, 8, 8, 8, 8, 8, 8], [8]), ([6, 6, 6, 6, 6, 6, 2, 2], [6, 2]), ([5, 5, 5, 5, 5, 3, 3, 3], [5, 3])]
    """

    def __init__(
        self,
        dataset: Any,
        max_length: int,
        *,
        strategy: Strategy = "best_fit",
        column: str = MAIN,
        columns: Sequence[str] | None = None,
        overlong: Literal["error", "truncate", "split"] = "error",
        lengths: Any = None,
        shuffle: bool = True,
        seed: int = 0,
        counts: Any = None,
        max_count: int | None = None,
    ) -> None:
        super().__init__(dataset, columns, column)
        packing = Packing.of(max_length, strategy, overlong, counts, max_count)
        sizes = measured(dataset, column) if lengths is None else lengths_of(lengths, len(dataset))
        self._plan, self._column = _Plan(packing, sizes, bool(shuffle), seed_of(seed)), column
        self._planned: tuple[int, Packs] | None = None
        self._current()  # raises for invalid lengths and options

    @property
    def _settings(self) -> dict[str, Any]:
        return settings_of(self._plan._asdict())

    @property
    def fill(self) -> float:
        """The share of the packs that holds tokens, from 0 to 1."""
        longest, sizes = self._plan.packing.max_length, self._plan.lengths
        if self._plan.packing.overlong == "truncate":
            sizes = np.minimum(sizes, longest)
        return int(sizes.sum()) / (len(self) * longest)

    def _current(self) -> Packs:
        epoch, planned, plan = self.epoch, self._planned, self._plan
        if planned is None or planned[0] != epoch:
            order = (plan.seed, epoch) if plan.shuffle else None
            packs = plan.packing.packs(plan.lengths, order)
            if order is not None:
                packs = packs.chosen(random_order(len(packs.rows), *order, GROUPS))
            planned = self._planned = (epoch, packs)
        return planned[1]

    def _items(self, plan: Packs, groups: list[int]) -> list[Pack]:
        packs = plan.chosen(groups)
        rows, pieces = self._rows(packs.rows.values.tolist()), self._plan.packing.pieces(packs, self._plan.lengths)
        return packs_of(rows, self._column, pieces, packs.rows.offsets)
