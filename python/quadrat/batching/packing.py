"""`plan_packs`: rows put together into packs of a fixed length."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.batching.lengths import lengths_of
from quadrat.ops._philox import number_below
from quadrat.ragged.offsets import tensor_or_array
from quadrat.ragged.ragged import Ragged
from quadrat.support.arrays import as_numpy

Strategy = Literal["best_fit", "first_fit", "in_order"]

IntArray = NDArray[np.int64]

_FITS = {"best_fit": _core.FIT_BEST, "first_fit": _core.FIT_FIRST, "in_order": _core.FIT_IN_ORDER}
_COMPARED = 1 << 16  # rows for which first fit is tried too
_OVERLONG = ("error", "truncate", "split")


def plan_packs(
    lengths: Any,
    max_length: int,
    strategy: Strategy = "best_fit",
    *,
    overlong: Literal["error", "truncate", "split"] = "error",
) -> Ragged:
    """Choose which rows form packs of at most `max_length` tokens.

    Rows are sorted in linear time, and rows of one length are placed together.

    Args:
        lengths: `[rows]` integers, in tokens: an array, a tensor or a list; or a dataset, whose `quadrat.lengths` are
            used. Rows of length 0 take no room.
        max_length: the maximum number of tokens in a pack; at most `2**27` with `strategy="best_fit"`.
        strategy: which pack a row goes into.

            - "best_fit": the longest row first, into the pack with the least room for it (best-fit decreasing; Johnson,
              "Near-optimal bin packing algorithms", 1973). For up to 65,536 rows, the packs of "first_fit" are returned
              if they are fewer, which is rare.
            - "first_fit": the longest row first, into the first pack with room for it (first-fit decreasing).
            - "in_order": rows stay in their order. A pack is closed when the next row does not fit (next fit).
        overlong: what happens to a row longer than `max_length`.

            - "error": raises ValueError.
            - "truncate": it counts as `max_length` tokens. The code that reads the row must cut it there.
            - "split": it becomes pieces of `max_length` tokens and a shorter last one. The row number appears once for
              each piece, and its n-th appearance in `values` (from 0) is the piece that begins at token
              `n * max_length`. `quadrat.batching.packing.piece_starts` returns these tokens.

    Returns:
        A `Ragged` of int64 row numbers, one row per pack, a tensor on the device of `lengths` if that is a tensor,
        otherwise a NumPy array. Each row appears once, unless it is split. The rows of a pack are in the order in which
        they were placed.

    Raises:
        TypeError: when `lengths` are not a 1-D array of integers, or `max_length` is not an int.
        ValueError: when `lengths` are empty, or one is negative or, with `overlong="error"`, above `max_length`; for a
            `max_length` below 1; for an unknown `strategy` or `overlong`.

    Examples:
        >>> import quadrat
        >>> quadrat.plan_packs([5, 3, 8, 2, 6], max_length=8).to_lists()
        [[2], [4, 3], [0, 1]]
        >>> quadrat.plan_packs([5, 3, 8, 2, 6], max_length=8, strategy="in_order").to_lists()
        [[0, 1], [2], [3, 4]]
        >>> quadrat.plan_packs([5, 20], max_length=8, overlong="split").to_lists()
        [[1], [1], [0], [1]]
    """
    check_choices(strategy, overlong)
    rows, _, offsets = plan_pieces(
        lengths_of(lengths), number_below(max_length, "max_length", 1 << 63, 1), strategy, overlong
    )
    return Ragged(tensor_or_array(rows, lengths), tensor_or_array(offsets, lengths))


def check_choices(strategy: Any, overlong: Any = "error") -> None:
    """Raises ValueError for names that `plan_packs` does not have."""
    if strategy not in _FITS:
        raise ValueError(f"strategy must be one of {', '.join(map(repr, _FITS))}, not {strategy!r}")
    if overlong not in _OVERLONG:
        raise ValueError(f"overlong must be one of {', '.join(map(repr, _OVERLONG))}, not {overlong!r}")


def plan_pieces(
    lengths: IntArray, max_length: int, strategy: Strategy, overlong: str
) -> tuple[IntArray, IntArray | None, IntArray]:
    """Packs of some rows: the row of each piece, the token at which it begins (None: the first), the packs' offsets."""
    if not len(lengths):
        raise ValueError("lengths are empty: there are no rows to pack")
    numbers, starts, sizes = pieces_of(lengths, max_length, overlong)
    total = int(sizes.sum())
    limit = min(max_length, max(total, 1))  # one pack holds all
    if strategy == "best_fit" and limit > _core.MOST_IN_PACK:
        raise ValueError(f"max_length must be at most {_core.MOST_IN_PACK} with strategy='best_fit', not {max_length}")
    order, offsets = packed(sizes, limit, _FITS[strategy])
    if strategy == "best_fit" and len(sizes) <= _COMPARED and len(offsets) - 1 > -(-total // limit):
        other = packed(sizes, limit, _core.FIT_FIRST)
        if len(other[1]) < len(offsets):
            order, offsets = other
    if numbers is None or starts is None:
        return order, None, offsets
    return numbers[order], starts[order], offsets


def piece_starts(packs: Ragged, max_length: int) -> IntArray:
    """The token at which each piece in `packs` begins, if `plan_packs` split rows with `overlong="split"`.

    Args:
        packs: the result of `plan_packs`.
        max_length: the `max_length` that `plan_packs` got.

    Returns:
        `[pieces]` int64, one for each element of `packs.values`: 0 for rows that are not split.
    """
    rows = as_numpy(packs.values, "packs")
    order = np.argsort(rows, kind="stable")
    places = np.arange(len(rows))
    begins = np.diff(rows[order], prepend=-1) != 0
    starts = np.empty(len(rows), np.int64)
    starts[order] = (places - np.maximum.accumulate(np.where(begins, places, 0))) * max_length
    return starts


def packed(lengths: IntArray, limit: int, fit: int) -> tuple[IntArray, IntArray]:
    """Row numbers, pack after pack, and the packs' offsets."""
    lengths = np.ascontiguousarray(lengths)
    rows, offsets = np.empty(len(lengths), np.int64), np.empty(len(lengths) + 1, np.int64)
    failure, packs = _core.pack_rows(lengths, limit, fit, rows, offsets)
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
