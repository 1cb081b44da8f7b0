"""Rows put together into packs of a fixed length."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np

from quadrat import _core
from quadrat.batching._epoch import ROWS, random_order
from quadrat.batching.budget import require_rows
from quadrat.batching.lengths import lengths_of
from quadrat.input.items import Pieces
from quadrat.ops._philox import number_below
from quadrat.ragged.offsets import as_lengths, require_each, tensor_or_array
from quadrat.ragged.ragged import Ragged
from quadrat.support.arrays import IntArray, as_numpy

Strategy = Literal["best_fit", "first_fit", "in_order"]
_FITS = {"best_fit": _core.FITS.BEST, "first_fit": _core.FITS.FIRST, "in_order": _core.FITS.IN_ORDER}
_COMPARED = 1 << 16  # rows for which "first_fit" is tried too
_OVERLONG = ("error", "truncate", "split")


def plan_packs(
    lengths: Any,
    max_length: int,
    strategy: Strategy = "best_fit",
    *,
    overlong: Literal["error", "truncate", "split"] = "error",
    counts: Any = None,
    max_count: int | None = None,
) -> Ragged:
    """Choose which rows form packs of at most `max_length` tokens.

    Rows are sorted in linear time, and rows of one length are placed together.

    Args:
        lengths: `[rows]` integers, in tokens: an array, a tensor or a list; or a dataset, whose `quadrat.lengths` are
            used. Rows of length 0 take no room.
        max_length: the maximum number of tokens in a pack; at most `2**27` with `strategy="best_fit"`.
        strategy: which pack a row goes into.

            - "best_fit": the longest row first, into the pack with the least room for it (best-fit decreasing; Johnson,
              "Near-optimal bin packing algorithms", 1973). Up to 65,536 rows are packed by "first_fit" if that takes
              fewer packs, which is rare.
            - "first_fit": the longest row first, into the first pack with room for it (first-fit decreasing).
            - "in_order": rows stay in their order. A pack is closed when the next row does not fit (next fit).
        overlong: what happens to a row longer than `max_length`.

            - "error": raises ValueError.
            - "truncate": it counts as `max_length` tokens. The code that reads the row must cut it there.
            - "split": it becomes pieces of `max_length` tokens and a shorter last one. The row number appears once for
              each piece, and its n-th appearance in `values` (from 0) is the piece that begins at token
              `n * max_length`. `quadrat.batching.packing.piece_starts` returns these tokens.
        counts: `[rows]` integers, a second size of each row, such as the number of its images. Of the packs with the
            least room for the tokens of a row, "best_fit" then takes one with the least room for the counts. Of rows of
            equal length, those with the largest counts come first.
        max_count: the maximum sum of counts in a pack.

    Returns:
        A `Ragged` of int64 row numbers, one row per pack, a tensor on the device of `lengths` if that is a tensor,
        otherwise a NumPy array. Each row appears once, unless it is split, in the order in which rows were placed.

    Raises:
        TypeError: when `lengths` are not a 1-D array of integers, or `max_length` is not an int.
        ValueError: when `lengths` are empty, or one is negative or, with `overlong="error"`, above `max_length`; for a
            `max_length` below 1; for an unknown `strategy` or `overlong`; for a count above `max_count`, for one of the
            two without the other, and for both with "first_fit" or "split".

    Examples:
        >>> import quadrat
        >>> quadrat.batching.plan_packs([5, 3, 8, 2, 6], max_length=8).to_lists()
        [[2], [4, 3], [0, 1]]
        >>> quadrat.batching.plan_packs([5, 3, 8, 2, 6], max_length=8, strategy="in_order").to_lists()
        [[0, 1], [2], [3, 4]]
        >>> quadrat.batching.plan_packs([5, 20], max_length=8, overlong="split").to_lists()
        [[1], [1], [0], [1]]
        >>> quadrat.batching.plan_packs([5, 3, 8, 2, 6], 16, counts=[1, 0, 2, 0, 1], max_count=2).to_lists()
        [[2], [4, 0, 1, 3]]
    """
    packs = Packing.of(max_length, strategy, overlong, counts, max_count).packs(lengths_of(lengths)).rows
    return Ragged(tensor_or_array(packs.values, lengths), tensor_or_array(packs.offsets, lengths))


def require_choice(value: Any, name: str, choices: Iterable[str]) -> None:
    """Raises ValueError unless a value is one of these."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


class Packs(NamedTuple):
    """Packs of some rows."""

    rows: Ragged  # the row numbers of each
    starts: Ragged | None  # the token at which each of these rows begins; None: with the first

    def chosen(self, numbers: Any) -> Packs:
        """Some of them."""
        return Packs(self.rows[numbers], None if self.starts is None else self.starts[numbers])


class Packing(NamedTuple):
    """How rows become packs."""

    max_length: int
    strategy: Strategy
    overlong: str
    counts: IntArray | None = None
    max_count: int = 0

    @classmethod
    def of(
        cls, max_length: Any, strategy: Any, overlong: Any = "error", counts: Any = None, max_count: Any = None
    ) -> Packing:
        """Raises TypeError or ValueError for what `plan_packs` does not take."""
        require_choice(strategy, "strategy", _FITS)
        require_choice(overlong, "overlong", _OVERLONG)
        length = number_below(max_length, "max_length", 1 << 63, 1)
        if counts is None and max_count is None:
            return cls(length, strategy, overlong)
        if counts is None or max_count is None:
            raise ValueError("give counts and max_count, or neither")
        if strategy == "first_fit" or overlong == "split":
            raise ValueError("packs with counts are made with strategy='best_fit' or 'in_order', and of whole rows")
        counts, most = as_lengths(counts, "counts"), number_below(max_count, "max_count", 1 << 62)
        if counts.size and int(counts.max()) > most:
            raise ValueError(f"row {int(counts.argmax())} has the count {int(counts.max())}, above max_count={most}")
        return cls(length, strategy, overlong, counts, most)

    def packs(self, lengths: IntArray, order: tuple[int, int] | None = None) -> Packs:
        """Packs of rows of these lengths. Raises ValueError without rows, or when one is too long."""
        # order: a seed and an epoch, by which rows of equal length are exchanged at random; None: they are not.
        require_rows(lengths, "pack")
        if self.overlong == "error":
            pieces_of(lengths, self.max_length, self.overlong)  # names a row before rows are exchanged
        moved, counts = None, self.counts
        if counts is not None:
            require_each(counts, len(lengths), "counts")
        if self.strategy != "in_order" and (order is not None or counts is not None):
            moved = np.arange(len(lengths)) if order is None else random_order(len(lengths), *order, ROWS)
            if counts is not None:  # of rows of equal length those with more first, in each epoch
                moved = moved[np.argsort(-counts[moved], kind="stable")]
            lengths, counts = lengths[moved], None if counts is None else counts[moved]
        rows, starts, sizes = pieces_of(lengths, self.max_length, self.overlong)
        places, offsets = self._packed(sizes, counts)
        rows = places if rows is None else rows[places]
        packs = Ragged(rows if moved is None else moved[rows], offsets)
        return Packs(packs, None if starts is None else Ragged(starts[places], offsets))

    def _packed(self, sizes: IntArray, counts: IntArray | None) -> tuple[IntArray, IntArray]:
        """The numbers of pieces of these sizes, pack after pack, and the packs' offsets."""
        total = int(sizes.sum())
        limit = min(self.max_length, max(total, 1))  # one pack holds all
        second = None if counts is None else (counts, min(self.max_count, int(counts.sum())))
        if self.strategy != "best_fit":
            return packed(sizes, limit, _FITS[self.strategy], second)
        if limit > _core.MOST_IN_PACK:
            longest = f"{_core.MOST_IN_PACK} with strategy='best_fit', not {self.max_length}"
            raise ValueError(f"max_length must be at most {longest}")
        if second is not None and second[1] >= _core.MOST_IN_PACK // (limit + 1):
            most = _core.MOST_IN_PACK // (limit + 1) - 1
            raise ValueError(f"max_count must be at most {most} with max_length={limit} and strategy='best_fit'")
        best = packed(sizes, limit, _core.FITS.BEST, second)
        if second is not None or len(sizes) > _COMPARED or len(best[1]) - 1 <= -(-total // limit):
            return best
        return min(best, packed(sizes, limit, _core.FITS.FIRST), key=lambda packs: len(packs[1]))

    def pieces(self, packs: Packs, lengths: IntArray) -> Pieces:
        """The stretches of rows of these lengths that packs are made of."""
        rows = packs.rows.values
        starts = np.zeros_like(rows) if packs.starts is None else packs.starts.values
        known = lengths[rows]
        return Pieces(rows, known, starts, np.minimum(known - starts, self.max_length))


def piece_starts(packs: Ragged, max_length: int) -> IntArray:
    """The token at which each piece in `packs` begins, `[pieces]` int64; `max_length`: that of `plan_packs`."""
    rows = as_numpy(packs.values, "packs")
    order = np.argsort(rows, kind="stable")
    places = np.arange(len(rows))
    begins = np.diff(rows[order], prepend=-1) != 0
    starts = np.empty(len(rows), np.int64)
    starts[order] = (places - np.maximum.accumulate(np.where(begins, places, 0))) * max_length
    return starts


def packed(
    lengths: IntArray, limit: int, fit: int, second: tuple[IntArray, int] | None = None
) -> tuple[IntArray, IntArray]:
    """Row numbers, pack after pack, and the packs' offsets. second: the counts of rows, and the most of a pack."""
    lengths = np.ascontiguousarray(lengths)
    rows, offsets = np.empty(len(lengths), np.int64), np.empty(len(lengths) + 1, np.int64)
    failure, packs = _core.pack_rows(lengths, limit, fit, rows, offsets, *(second or ()))
    if failure is not None:
        raise ValueError(f"row {failure[1]} changed its length while it was packed")
    return rows, offsets[: packs + 1].copy()


def pieces_of(lengths: IntArray, limit: int, overlong: str) -> tuple[IntArray | None, IntArray | None, IntArray]:
    """The row of each piece and the token at which it begins, None where rows are whole; and the size of each."""
    if not len(lengths) or (longest := int(lengths.max())) <= limit or overlong == "alone":
        return None, None, lengths
    if overlong == "error":
        raise ValueError(
            f"row {int(lengths.argmax())} has {longest} tokens, more than max_length={limit}; "
            "overlong='truncate' cuts such rows, overlong='split' packs them in pieces"
        )
    if overlong == "truncate":
        return None, None, np.minimum(lengths, limit)
    counts = np.maximum(-(-lengths // limit), 1)
    numbers = np.repeat(np.arange(len(lengths)), counts)
    starts = (np.arange(len(numbers)) - np.repeat(counts.cumsum() - counts, counts)) * limit
    return numbers, starts, np.minimum(lengths[numbers] - starts, limit)
