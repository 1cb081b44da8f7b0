"""The limit of a batch's cost, and rows grouped into batches within it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from quadrat import _core
from quadrat.batching.cost import AttentionCost
from quadrat.ops._philox import number_below
from quadrat.ragged.ragged import Ragged
from quadrat.ragged.take import copy_rows
from quadrat.support.arrays import IntArray

_BATCHES_OF_A_WINDOW, _FEWEST_OF_A_WINDOW = 64, 2048
MOST_ROWS = (1 << 62) - 1


def require_rows(lengths: Any, purpose: str) -> None:
    """Raises ValueError if there are no rows."""
    if not len(lengths):
        raise ValueError(f"lengths are empty: there are no rows to {purpose}")


def histogram(values: IntArray) -> tuple[IntArray, IntArray]:
    """The different values, rising, and how often each occurs."""
    if int(values.max()) > max(4 * len(values), 1 << 16):
        return np.unique(values, return_counts=True)
    counts = np.bincount(values)
    found = np.flatnonzero(counts)
    return found, counts[found]


def joins_rows(collator: Any) -> bool:
    """True if a batch is one long row, without padding."""
    return bool(getattr(collator, "padding_free", False) or "Flattening" in type(collator).__name__)


class Budget(NamedTuple):
    """The limit of a batch's cost, as the kernels take it."""

    tokens: int
    rows: int
    multiple_of: int  # the width of a padded batch is one of these, or the length of a flat one
    padded: bool  # whether the tokens are rows times the longest, or the sum of lengths

    @classmethod
    def of(
        cls, max_tokens: Any, padded: Any, max_batch_size: Any, multiple_of: Any, called: str = "multiple_of"
    ) -> Budget:
        """Raises TypeError or ValueError for numbers out of range. `called`: the caller's name of `multiple_of`."""
        tokens = number_below(max_tokens, "max_tokens", _core.MOST_BUDGET + 1, 1)
        rows = MOST_ROWS if max_batch_size is None else number_below(max_batch_size, "max_batch_size", 1 << 62, 1)
        multiple = number_below(multiple_of, called, 1 << 61, 1)
        if multiple > tokens:
            raise ValueError(f"{called}={multiple} is above max_tokens={tokens}: no batch fits the budget")
        return cls(tokens, rows, multiple, bool(padded))

    def settings(self) -> dict[str, Any]:
        """The entries of a state."""
        return {f"budget_{name}": value for name, value in self._asdict().items()}

    def require(self, lengths: IntArray, called: str = "multiple_of", advice: str = "give {least} or more") -> None:
        """Raises ValueError if there are no rows, or one is above the budget."""
        require_rows(lengths, "batch")
        longest, multiple = int(lengths.max()), self.multiple_of
        if (least := -(-longest // multiple) * multiple) > self.tokens:
            rounded = f" with {called}={multiple}" if longest <= self.tokens else ""
            raise ValueError(
                f"row {int(lengths.argmax())} has {longest} tokens, more than max_tokens={self.tokens} allow{rounded}; "
                f"{advice.format(least=least)}"
            )

    def priced(self, cost: AttentionCost | None, lengths: IntArray) -> tuple[IntArray, Budget]:
        """The costs of rows of these lengths, and the budget in the same unit: its tokens in rows of median width."""
        if cost is None or not len(lengths):
            return lengths, self
        widths, multiple = lengths, self.multiple_of
        if self.padded and multiple > 1:
            widths = -(-widths // multiple) * multiple
        found, counts = histogram(widths)
        median = found[np.searchsorted(counts.cumsum(), -(-len(widths) // 2))]
        costs = cost.of_rows(widths) if found[-1] >= len(widths) else cost.of_rows(np.arange(found[-1] + 1))[widths]
        tokens = round(self.tokens * float(cost.of_tokens(median)))
        return costs, self._replace(tokens=min(tokens, _core.MOST_BUDGET), multiple_of=1)

    def usual_window(self, lengths: IntArray) -> int:
        """The rows of some batches: the last rows of a window are then few of its rows."""
        rows = min(self.rows, self.tokens * len(lengths) // max(int(lengths.sum()), 1))
        return max(_FEWEST_OF_A_WINDOW, min(len(lengths), _BATCHES_OF_A_WINDOW * rows))

    def batched(self, lengths: IntArray, rows: IntArray, window: int) -> IntArray:
        """Batches, `[batches, 3]`: where in `rows` each begins and ends, and its cost. Sorts the rows by windows."""
        batches = np.empty((len(rows), 3), np.int64)
        failure, made = _core.plan_batches(lengths, self, window, rows, batches)
        if failure is not None:
            raise ValueError(f"row {failure[1]} has the length {lengths[failure[1]]}, above {_core.MOST_BUDGET}")
        return batches[:made]

    def balanced(
        self, lengths: IntArray, rows: IntArray, batches: IntArray, *, ranks: int, steps: int, order: IntArray | None
    ) -> IntArray:
        """The batches of all ranks, `[steps, ranks, 3]`; steps in an order, by default that of their first rows."""
        room = np.empty((max(len(batches), steps * ranks), 3), np.int64)
        room[: len(batches)] = batches
        out = np.empty((steps, ranks, 3), np.int64)
        if not _core.balance_batches(lengths, self, rows, room, len(batches), ranks, order, out):
            raise ValueError(f"{len(batches)} batches cannot be shared by {ranks} ranks in {steps} steps")
        return out


def ragged_of(rows: IntArray, batches: IntArray) -> Ragged:
    """The row numbers of batches."""
    bounds = batches[:, :2].ravel()
    offsets = np.concatenate(([0], (bounds[1::2] - bounds[::2]).cumsum()))
    return Ragged(copy_rows(rows, bounds, np.arange(0, len(bounds), 2), int(offsets[-1])), offsets)
