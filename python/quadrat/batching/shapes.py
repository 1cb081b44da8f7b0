"""`plan_shapes`: the few shapes of batches that waste the least."""

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quadrat import _core
from quadrat.batching._epoch import random_order
from quadrat.batching.budget import MOST_ROWS, AttentionCost, Budget, attention_of, histogram
from quadrat.batching.lengths import lengths_of
from quadrat.ops._padding import as_int
from quadrat.ops._philox import number_below
from quadrat.support.arrays import IntArray

_SHOWN = (1, 2, 4, 8)  # numbers of shapes, for comparison
_MOST_WIDTHS = 1 << 15  # the search compares all pairs of them, at worst


@dataclass(frozen=True)
class ShapePlan:
    """The shapes of batches, as `plan_shapes` returns them. You may also make one of your own shapes.

    Attributes:
        shapes: `(rows, width)` of each shape, by rising width. If the plan is not padded, `(most rows, total)`.
        padded: whether a batch has `rows` rows, each padded to `width`; otherwise its rows are joined, and padded to
            `total`.
        longest: the longest row, in tokens: the `max_length` of all batches that are not padded.
        tokens: the tokens of all rows.
        computed: the tokens that batches compute, padding included, by the number of shapes; None: of any shape.

    Examples:
        >>> from quadrat.batching import ShapePlan
        >>> ShapePlan([(8, 64), (4, 128)])
        ShapePlan(8 x 64, 4 x 128)
    """

    shapes: list[tuple[int, int]]
    padded: bool = True
    longest: int = 0
    tokens: int = 0
    computed: dict[int | None, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises TypeError unless shapes are of ints, and ValueError unless there are some, by rising width."""
        widths = [as_int(width, "the width of a shape") for _, width in self.shapes]
        rows = [as_int(rows, "the rows of a shape") for rows, _ in self.shapes]
        if not widths or widths != sorted(set(widths)) or min(widths + rows) < 1:
            raise ValueError(f"shapes must be (rows, width) by rising width, not {self.shapes}")
        if not self.longest:
            object.__setattr__(self, "longest", widths[-1])

    @property
    def max_tokens(self) -> int:
        """The tokens of the largest batch."""
        return max(rows * width for rows, width in self.shapes) if self.padded else self.shapes[-1][1]

    @property
    def waste(self) -> float:
        """The share of padding in the tokens computed, filled rows included, from 0 to 1; 0 without lengths."""
        return self._waste(len(self.shapes))

    def _waste(self, shapes: int | None) -> float:
        return 1 - self.tokens / self.computed[shapes] if self.computed else 0.0

    def __repr__(self) -> str:
        made = ", ".join(f"{rows} x {width}" for rows, width in self.shapes)
        counts = ("any" if count is None else count for count in self.computed)
        waste = ", ".join(f"{name} {self._waste(at):.1%}" for name, at in zip(counts, self.computed, strict=True))
        return f"ShapePlan({made}{f'; waste by number of shapes: {waste}' if waste else ''})"

    def batches(
        self, sizes: IntArray, rows: IntArray, attention: AttentionCost | None = None
    ) -> tuple[IntArray, IntArray]:
        """Rows of these sizes by shape, in their order; and batches, `[batches, 3]`: begin, end and cost of each."""
        shape = np.searchsorted([width for _, width in self.shapes], sizes[rows]).astype(np.uint16)
        costs = self.costs(attention)
        made, first = [], 0
        counts = np.bincount(shape, minlength=len(self.shapes)).tolist()
        for (most, _), count, cost in zip(self.shapes, counts, costs, strict=True):
            begins = np.arange(first, first + count, most)
            first += count
            made.append(np.stack([begins, np.minimum(begins + most, first), np.full(len(begins), cost)], 1))
        return rows[np.argsort(shape, kind="stable")], np.concatenate(made)

    def costs(self, attention: AttentionCost | None = None) -> list[int]:
        """The cost of a batch of each shape, in tokens."""
        widths = [width for _, width in self.shapes]
        of_rows = widths if attention is None else attention.of_rows(widths).tolist()
        return [rows * cost for (rows, _), cost in zip(self.shapes, of_rows, strict=True)]

    def fitting(self, rows: int, width: int) -> tuple[int, int]:
        """The first shape that holds so many rows of this width. Raises ValueError."""
        for shape in self.shapes:
            if shape[0] >= rows and shape[1] >= width:
                return shape
        batch = f"{rows} x {width}" if self.padded else f"{rows} rows and {width} tokens"
        raise ValueError(
            f"a batch of {batch} fits none of the shapes of {self!r}: choose rows with "
            "TokenBudgetBatchSampler(..., shapes=plan), or give a plan with a larger shape"
        )


def plan_shapes(
    lengths: Any,
    max_tokens: int,
    shapes: int = 4,
    *,
    padded: bool = True,
    pad_to_multiple_of: int = 8,
    max_batch_size: int | None = None,
    attention: Any = None,
) -> ShapePlan:
    """Choose at most `shapes` shapes for batches, which together compute the fewest tokens.

    `torch.compile`, CUDA graphs and accelerators work once per shape. `TokenBudgetBatchSampler` and `BatchedStream`
    take the plan and choose the rows, and `FixedShapes` fills each batch to its shape.

    A batch of width w has `max_tokens // w` rows, and a row goes to the least width that it fits. So of n rows, a width
    of r rows a batch computes `ceil(n / r) * r * w` tokens. The plan has the smallest sum of all plans whose widths are
    lengths of rows, rounded up to `pad_to_multiple_of`. It takes milliseconds for a thousand widths, and seconds for
    ten thousand.

    Args:
        lengths: `[rows]` integers, in tokens: an array, a tensor or a list; or a dataset, whose `quadrat.lengths` are
            used.
        max_tokens: the maximum number of tokens in a batch, padding included.
        shapes: the maximum number of shapes.
        padded: False: for batches that join their rows. The shapes are then totals of tokens, chosen for the batches
            that `TokenBudgetBatchSampler` makes in random order, and no batch has more rows than any of those.
        pad_to_multiple_of: each width is a multiple of this.
        max_batch_size: the maximum number of rows in a batch; None: as many as `max_tokens` allow.
        attention: see `TokenBudgetBatchSampler`: each shape then costs about the same, and the plan and the waste are
            those of costs instead of tokens. Only for padded batches.

    Returns:
        A `ShapePlan`. Printed, it shows the waste of 1, 2, 4 and 8 shapes too, and of batches of any shape.

    Raises:
        TypeError: when `lengths` are not a 1-D array of integers, or a number is not an int.
        ValueError: when `lengths` are empty, or one is negative or above `max_tokens`; for a number out of range; when
            there are more than 32,768 different widths, or so many and so many shapes that they cannot be compared.

    Examples:
        >>> from quadrat.batching import plan_shapes
        >>> plan_shapes([5, 7, 8, 12, 16, 30, 31, 64], max_tokens=64, shapes=2)
        ShapePlan(4 x 16, 1 x 64; waste by number of shapes: 1 66.2%, 2 45.9%, 4 32.4%, 8 32.4%, any 13.5%)
    """
    called = "pad_to_multiple_of"
    budget = Budget.of(max_tokens, padded, max_batch_size, pad_to_multiple_of, called)
    cost = attention_of(attention)
    _require_padded(budget, cost)
    return _planned(lengths_of(lengths), budget, shapes, called, cost)


def with_shapes(
    shapes: Any, budget: Budget, lengths: IntArray | None, attention: AttentionCost | None = None
) -> tuple[ShapePlan | None, Budget]:
    """The plan, for a number of shapes or as it was given, and the budget of batches that keep to it."""
    if shapes is None:
        return None, budget
    _require_padded(budget, attention)
    plan = shapes
    if not isinstance(plan, ShapePlan):
        if lengths is None:
            raise TypeError(
                "the lengths of a stream are not known before it is read: give "
                "shapes=quadrat.batching.plan_shapes(lengths, ...)"
            )
        multiple = 8 if budget.multiple_of == 1 else budget.multiple_of
        of_multiple = Budget.of(budget.tokens, budget.padded, budget.rows, multiple)
        plan = _planned(lengths, of_multiple, shapes, attention=attention)
    tokens, rows, widest = plan.max_tokens, max(rows for rows, _ in plan.shapes), plan.shapes[-1][1]
    if plan.padded != budget.padded:
        raise ValueError(
            f"the plan is for padded={plan.padded}, not for padded={budget.padded}: give "
            f"quadrat.batching.plan_shapes(..., padded={budget.padded})"
        )
    limit = budget.tokens
    if attention is not None:  # batches of short rows have more: at most so many if most rows are long
        limit = math.ceil(limit * float(attention.of_tokens(widest)))
    if tokens > limit or rows > budget.rows:
        most = f"{budget.tokens} tokens" + (f" and {budget.rows} rows" if budget.rows < MOST_ROWS else "")
        raise ValueError(f"the plan has batches of {tokens} tokens and {rows} rows, more than {most}: allow more")
    if lengths is not None and (longest := int(lengths.max())) > widest:
        row = int(lengths.argmax())
        raise ValueError(f"row {row} has {longest} tokens, and the widest shape {widest}: give a plan of these lengths")
    return plan, Budget(budget.tokens if plan.padded else widest, rows, 1, plan.padded)


def shown(plan: ShapePlan | None, cost: AttentionCost | None) -> dict[str, str]:
    """The entries of a state."""
    return {"shapes": "" if plan is None else str(plan.shapes), "attention": "" if cost is None else str(cost)}


def _require_padded(budget: Budget, attention: AttentionCost | None) -> None:
    if attention is not None and not budget.padded:
        raise ValueError("shapes of batches that join their rows are totals of tokens: leave out shapes or attention")


def _planned(
    known: IntArray, budget: Budget, shapes: Any, called: str = "multiple_of", attention: AttentionCost | None = None
) -> ShapePlan:
    budget.require(known, called)
    count, multiple, padded = number_below(shapes, "shapes", 1 << 32, 1), budget.multiple_of, budget.padded
    if padded:
        sizes, rows = known, 0
    else:
        # Without padding, rows need no sorting: and unsorted, no batch has many more rows than the others.
        free = budget.batched(known, random_order(len(known), 0, 0, 0), 1)
        sizes, rows = free[:, 2], int((free[:, 1] - free[:, 0]).max())
    found, counts = histogram(sizes)
    rounded = np.maximum(-(-found // multiple), 1) * multiple
    firsts = np.flatnonzero(np.diff(rounded, prepend=0))
    widths, counts = rounded[firsts], np.add.reduceat(counts, firsts)
    if not padded and widths[-1] < (whole := budget.tokens // multiple * multiple):  # other epochs may need it
        widths, counts = np.append(widths, whole), np.append(counts, 0)
    if len(widths) > _MOST_WIDTHS:
        raise ValueError(f"there are {len(widths)} different widths: give a larger {called} than {multiple}")
    count = min(count, len(widths))
    of_rows = widths if attention is None else attention.of_rows(widths)
    tokens = budget.priced(attention, known)[1].tokens
    each = np.clip(tokens // of_rows, 1, budget.rows) if padded else np.ones_like(widths)
    costs, chosen = np.empty(max(count, *_SHOWN), np.int64), np.empty(count, np.int64)
    failure = _core.plan_shapes(of_rows, counts, each, costs, chosen)
    if failure is not None and failure[0] == _core.CODES.ROW_TOO_LONG:
        raise ValueError(
            f"{count} shapes of {len(widths)} widths are too many to compare: give shapes={failure[1]} or fewer, or a "
            f"larger {called} than {multiple}"
        )
    if failure is not None:
        raise ValueError(f"{len(known)} rows in batches of max_tokens={budget.tokens} are too many tokens to count")
    places = chosen[chosen >= 0]
    made = zip(each[places].tolist() if padded else [rows] * len(places), widths[places].tolist(), strict=True)
    computed: dict[int | None, int] = {at: int(costs[at - 1]) for at in sorted({*_SHOWN, len(places)})}
    computed[None] = _of_any_shape(of_rows.tolist(), counts, each.tolist()) if padded else int(free[:, 2].sum())
    total = int((known if attention is None else attention.of_rows(known)).sum())
    return ShapePlan(list(made), padded, int(known.max()), total, computed)


def _of_any_shape(widths: list[int], counts: IntArray, each: list[int]) -> int:
    """The tokens of batches that take the widest rows that are left, as many as the first one's width allows."""
    total, begin, ends = 0, 0, counts[::-1].cumsum().tolist()
    while begin < ends[-1]:
        place = bisect_right(ends, begin)
        at = len(ends) - 1 - place
        rows = max((ends[place] - begin) // each[at], 1) * each[at]  # of all batches that begin with this width
        rows = min(rows, ends[-1] - begin)
        total, begin = total + rows * widths[at], begin + rows
    return total
