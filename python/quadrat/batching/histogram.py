"""`packs_needed`: how many packs rows need, from the counts of their lengths."""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np

from quadrat.ops._philox import number_below
from quadrat.support.arrays import as_numpy

__all__ = ["packs_needed"]


def packs_needed(counts: Any, max_length: int) -> int:
    """The number of packs that best-fit decreasing makes, computed from the counts of row lengths alone.

    `quadrat.pack(lengths, max_length)` makes this number of packs from more than 65,536 rows, and at most this number
    from fewer. Time and memory grow with the number of different lengths, not with the number of rows: all rows of one
    length are placed at once. This gives the number of steps of an epoch over a stream beforehand, from one pass over
    the lengths and memory for their counts.

    Args:
        counts: `[longest + 1]` integers: how many rows have 0 tokens, 1 token and so on, as `numpy.bincount(lengths)`
            counts them. Those of parts of a dataset may be added up.
        max_length: the most tokens in a pack.

    Returns:
        The number of packs; 0 if there are no rows. A lower bound for any packing is the number of tokens divided by
        `max_length`.

    Raises:
        TypeError: when `counts` are not integers of one dimension, or `max_length` is not an int.
        ValueError: when a count is negative, a row is longer than `max_length`, or `max_length` is below 1.

    Examples:
        >>> import numpy
        >>> from quadrat.batching.histogram import packs_needed
        >>> packs_needed(numpy.bincount([5, 3, 8, 2, 6]), max_length=8)
        3
        >>> packs_needed(numpy.bincount([5, 3, 8, 2, 6]) * 1_000_000_000, max_length=8)
        3000000000
    """
    limit = number_below(max_length, "max_length", 1 << 63, 1)
    found = as_numpy(counts, "counts")
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise TypeError(f"counts must be integers of one dimension, not {found.dtype} of {found.ndim}")
    if found.size and found.min() < 0:
        raise ValueError(f"{int(found.min())} rows have {int(found.argmin())} tokens: counts must not be negative")
    there = np.flatnonzero(found).tolist()
    if not there:
        return 0
    if there[-1] > limit:
        raise ValueError(f"{found[there[-1]]} rows have {there[-1]} tokens, more than max_length={limit}")
    packs, open_packs = 0, _OpenPacks()
    for length in reversed(there):
        left = int(found[length]) if length else 0
        while left:
            room = open_packs.least_room(length)
            # A pack that has taken a row has the least room for the next one: it takes as many as it can.
            each = (room or limit) // length
            full, rest = divmod(left, each)
            if room is None:
                room = limit
                packs += full + (rest > 0)
            else:
                if full >= open_packs.count[room]:
                    full, rest = open_packs.count[room], 0
                open_packs.remove(room, full + (rest > 0))
            open_packs.add(room - each * length, full)
            open_packs.add(room - rest * length, int(rest > 0))
            left -= full * each + rest
    return max(packs, 1)


class _OpenPacks:
    """How many packs have which room left; those without any are not kept."""

    def __init__(self) -> None:
        self.count: dict[int, int] = {}
        self._rooms: list[int] = []  # in order

    def least_room(self, length: int) -> int | None:
        """The least room that a row fits into; None: no pack has it."""
        at = bisect.bisect_left(self._rooms, length)
        return self._rooms[at] if at < len(self._rooms) else None

    def add(self, room: int, packs: int) -> None:
        if not room or not packs:
            return
        if room not in self.count:
            bisect.insort(self._rooms, room)
            self.count[room] = 0
        self.count[room] += packs

    def remove(self, room: int, packs: int) -> None:
        self.count[room] -= packs
        if not self.count[room]:
            del self.count[room], self._rooms[bisect.bisect_left(self._rooms, room)]
