"""`plan_shapes`: the few shapes of batches that waste the least; `FixedShapes` fills batches to them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quadrat import _core
from quadrat.batching._epoch import random_order
from quadrat.batching.budget import MOST_ROWS, Budget
from quadrat.batching.lengths import lengths_of
from quadrat.input.rows import MAIN
from quadrat.ops._philox import number_below
from quadrat.support.arrays import IntArray
from quadrat.support.memory import is_tensor

_SHOWN = (1, 2, 4, 8)  # numbers of shapes, for comparison
_MOST_WIDTHS = 1 << 15  # the search compares all pairs of them, at worst
# Other than 0 and what the collator pads with.
_FILLS = {"labels": -100, "seq_idx": -1, "special_tokens_mask": 1, "padding_mask": True}


@dataclass(frozen=True)
class ShapePlan:
    """The shapes of batches, as `plan_shapes` returns them. You may also make one of your own shapes.

    Attributes:
        shapes: `(rows, width)` of each shape, by rising width. If the plan is not padded, `(most rows, total)`.
        padded: whether a batch has `rows` rows, each padded to `width`; otherwise its rows are joined, and padded at
            the end to `total`.
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
        """Raises ValueError unless there are shapes, by rising width."""
        widths = [width for _, width in self.shapes]
        if not widths or widths != sorted(set(widths)) or min(map(min, self.shapes)) < 1:
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

    def batches(self, sizes: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Rows of these sizes by shape, in their order; and batches, `[batches, 3]`: begin, end and cost of each."""
        shape = np.searchsorted([width for _, width in self.shapes], sizes[rows]).astype(np.uint16)
        made, first = [], 0
        counts = np.bincount(shape, minlength=len(self.shapes)).tolist()
        for (most, width), count in zip(self.shapes, counts, strict=True):
            begins = np.arange(first, first + count, most)
            first += count
            made.append(np.stack([begins, np.minimum(begins + most, first), np.full(len(begins), most * width)], 1))
        return rows[np.argsort(shape, kind="stable")], np.concatenate(made)

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
) -> ShapePlan:
    """Choose at most `shapes` shapes for batches, which together compute the fewest tokens.

    `torch.compile`, CUDA graphs and accelerators work once per shape. With a few shapes they work a few times, and
    batches have little padding. `TokenBudgetBatchSampler` and `BatchedStream` take the plan and choose the rows, and
    `FixedShapes` fills each batch to its shape.

    A batch of width w has `max_tokens // w` rows. A row goes to the least width that it fits. So of n rows, a width of
    r rows a batch computes `ceil(n / r) * r * w` tokens, those that fill the last batch included. The plan is the one
    with the smallest sum, of all plans whose widths are lengths of rows, rounded up to `pad_to_multiple_of`. It takes
    milliseconds for a thousand different widths and a few shapes, and seconds for thousands of both.

    Args:
        lengths: `[rows]` integers, in tokens: an array, a tensor or a list; or a dataset, whose `quadrat.lengths` are
            used.
        max_tokens: the maximum number of tokens in a batch, padding included.
        shapes: the maximum number of shapes.
        padded: False: for batches that join their rows. The shapes are then totals of tokens, chosen for the batches
            that `TokenBudgetBatchSampler` makes of these lengths in random order, and no batch has more rows than any
            of those.
        pad_to_multiple_of: each width is a multiple of this.
        max_batch_size: the maximum number of rows in a batch; None: as many as `max_tokens` allow.

    Returns:
        A `ShapePlan`. Printed, it shows the waste of 1, 2, 4 and 8 shapes too, and of batches of any shape.

    Raises:
        TypeError: when `lengths` are not a 1-D array of integers, or a number is not an int.
        ValueError: when `lengths` are empty, or one is negative or above `max_tokens`; for a number out of range; when
            there are more than 32,768 different widths, or so many and so many shapes that they cannot be compared.

    Examples:
        >>> from quadrat.batching import plan_shapes
        >>> plan_shapes([5, 7, 8, 12, 16, 30, 31, 64], max_tokens=64, shapes=2)
        ShapePlan(2 x 32, 1 x 64; waste by number of shapes: 1 66.2%, 2 45.9%, 4 32.4%, 8 32.4%, any 13.5%)
        >>> plan_shapes([5, 7, 8, 12, 16, 30, 31, 64], max_tokens=64, shapes=2).shapes
        [(2, 32), (1, 64)]
    """
    called = "pad_to_multiple_of"
    budget = Budget.of(max_tokens, padded, max_batch_size, pad_to_multiple_of, called)
    return _planned(lengths_of(lengths), budget, shapes, called)


def with_shapes(shapes: Any, budget: Budget, lengths: IntArray | None) -> tuple[ShapePlan | None, Budget]:
    """The plan, for a number of shapes or as it was given, and the budget of batches that keep to it."""
    if shapes is None:
        return None, budget
    plan = shapes
    if not isinstance(plan, ShapePlan):
        if lengths is None:
            raise TypeError(
                "the lengths of a stream are not known before it is read: give "
                "shapes=quadrat.batching.plan_shapes(lengths, ...)"
            )
        multiple = 8 if budget.multiple_of == 1 else budget.multiple_of
        plan = _planned(lengths, Budget.of(budget.tokens, budget.padded, budget.rows, multiple), shapes)
    tokens, rows, widest = plan.max_tokens, max(rows for rows, _ in plan.shapes), plan.shapes[-1][1]
    if plan.padded != budget.padded:
        raise ValueError(
            f"the plan is for padded={plan.padded}, not for padded={budget.padded}: give "
            f"quadrat.batching.plan_shapes(..., padded={budget.padded})"
        )
    if tokens > budget.tokens or rows > budget.rows:
        most = f"{budget.tokens} tokens" + (f" and {budget.rows} rows" if budget.rows < MOST_ROWS else "")
        raise ValueError(f"the plan has batches of {tokens} tokens and {rows} rows, more than {most}: allow more")
    if lengths is not None and (longest := int(lengths.max())) > widest:
        row = int(lengths.argmax())
        raise ValueError(f"row {row} has {longest} tokens, and the widest shape {widest}: give a plan of these lengths")
    return plan, Budget(budget.tokens if plan.padded else widest, rows, 1, plan.padded)


def _planned(known: IntArray, budget: Budget, shapes: Any, called: str = "multiple_of") -> ShapePlan:
    budget.require(known, called)
    count, multiple, padded = number_below(shapes, "shapes", 1 << 32, 1), budget.multiple_of, budget.padded
    if padded:
        sizes, rows = known, 0
    else:
        # Without padding, rows need no sorting: and unsorted, no batch has many more rows than the others.
        free = budget.batched(known, random_order(len(known), 0, 0, 0), 1)
        sizes, rows = free[:, 2], int((free[:, 1] - free[:, 0]).max())
    found, counts = _histogram(sizes)
    rounded = np.maximum(-(-found // multiple), 1) * multiple
    firsts = np.flatnonzero(np.diff(rounded, prepend=0))
    widths, counts = rounded[firsts], np.add.reduceat(counts, firsts)
    if not padded and widths[-1] < (whole := budget.tokens // multiple * multiple):  # other epochs may need it
        widths, counts = np.append(widths, whole), np.append(counts, 0)
    if len(widths) > _MOST_WIDTHS:
        raise ValueError(f"there are {len(widths)} different widths: give a larger {called} than {multiple}")
    count = min(count, len(widths))
    each = np.minimum(budget.tokens // widths, budget.rows) if padded else np.ones_like(widths)
    costs, chosen = np.empty(max(count, *_SHOWN), np.int64), np.empty(count, np.int64)
    failure = _core.plan_shapes(widths, counts, each, costs, chosen)
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
    computed[None] = _of_any_shape(widths.tolist(), counts, each.tolist()) if padded else int(free[:, 2].sum())
    return ShapePlan(list(made), padded, int(known.max()), int(known.sum()), computed)


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


def _histogram(values: IntArray) -> tuple[IntArray, IntArray]:
    """The different values, rising, and how often each occurs."""
    if int(values.max()) > max(4 * len(values), 1 << 16):
        return np.unique(values, return_counts=True)
    counts = np.bincount(values)
    found = np.flatnonzero(counts)
    return found, counts[found]


class FixedShapes:
    """A collator whose batches have the shapes of a plan: another collator's, filled.

    In a padded batch, each row is padded to the width, and rows are added: of padding, with labels of -100, and with
    an attention mask of one token, because some implementations of attention return NaN for a row that attends to
    nothing. So losses that leave out labels of -100, as those of transformers do, do not change; outputs have more rows
    and columns.

    In a batch of joined rows, padding comes last, in rows of its own of at most `plan.longest` tokens, with labels of
    -100 and `seq_idx` of -1. So attention kernels, which leave the gradients of tokens beyond the last row undefined,
    compute all tokens, and positions stay below `longest`. Boundaries have one number of entries, enough for the rows
    of any batch and of any padding; the rest repeat the end. `max_length` is `longest`. With `align_to`, padding
    belongs to the place of the last row, and the longest place is the total.

    A column is filled with what the collator pads it with: its tokenizer's tokens, its `pad_values`, otherwise 0.

    Args:
        collator: returns a dict with `input_ids`, tensors or arrays; or `quadrat.flatten`, with its options in a
            `functools.partial`.
        plan: a `ShapePlan`.

    Raises:
        TypeError: for a collator with `deferred=True`, whose batches are not tensors yet.
        ValueError: for a batch with more rows or tokens than any of the shapes, a padded batch without
            `attention_mask`, and labels that are floats, one per row, which no loss leaves out.

    Examples:
        >>> import quadrat
        >>> from quadrat.batching import FixedShapes, ShapePlan
        >>> plan = ShapePlan([(3, 8)], padded=False)
        >>> collate = FixedShapes(quadrat.DataCollatorWithFlattening(return_flash_attn_kwargs=True), plan)
        >>> batch = collate([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
        >>> batch["input_ids"].tolist(), batch["cu_seq_lens_q"].tolist(), batch["max_length_q"]
        ([[5, 6, 7, 8, 9, 0, 0, 0]], [0, 3, 5, 8, 8], 8)
        >>> FixedShapes(quadrat.flatten, plan)([[5, 6, 7], [8, 9]]).cu_seqlens.tolist()
        [0, 3, 5, 8, 8]
    """

    def __init__(self, collator: Any, plan: ShapePlan) -> None:
        if getattr(collator, "deferred", False):
            raise TypeError("a collator with deferred=True returns no tensors to fill: use deferred=False")
        self.collator, self.plan = collator, plan

    def __getattr__(self, name: str) -> Any:
        if name == "collator":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.collator, name)

    def __call__(self, features: Any) -> Any:
        """The batch of `features`, in one of the shapes."""
        batch = self.collator(features)
        named = dict(zip(batch._fields, batch, strict=True)) if hasattr(batch, "_fields") else batch  # of flatten
        (self._pad if self.plan.padded else self._join)(named)
        return type(batch)(**named) if hasattr(batch, "_fields") else batch

    def _pad(self, batch: Any) -> None:
        """Fills what has a place for each row, and of that, for each token."""
        rows, width = batch[MAIN].shape
        most, widest = self.plan.fitting(rows, width)
        if (rows, width) == (most, widest):
            return
        if "attention_mask" not in batch:
            raise ValueError("the batch has no attention_mask, so the model would take the filled tokens for tokens")
        for name, value in batch.items():
            dims: Sequence[int] = getattr(value, "shape", ())
            if len(dims) and dims[0] == rows:
                shape = (most, *(widest if size == width else size for size in dims[1:]))
                batch[name] = _filled(name, value, shape, self._fill_of(name))
        batch["attention_mask"][rows:, 0] = 1

    def _join(self, batch: dict[str, Any]) -> None:
        """Fills what has a place for each token, and where rows begin. Lengths become those of the plan."""
        main = MAIN if MAIN in batch else "values"
        lead: tuple[int, ...] = (1,) if main == MAIN else ()
        width = int(batch[main].shape[len(lead)])
        counts = {name: len(batch[name]) - 1 for name in batch if name.startswith("cu_seq")}
        if len(getattr(batch.get("labels"), "shape", ())) == 1:
            counts["labels"] = len(batch["labels"])
        most, total = self.plan.fitting(max(counts.values(), default=1), width)
        longest, widest = self.plan.longest, self.plan.shapes[-1][1]
        bounds = max(rows for rows, _ in self.plan.shapes) + 1 + -(-widest // longest)  # rows of padding included
        aligned = "padding_mask" in batch  # then bounds and lengths speak of places, and the last one ends the batch
        for name, value in batch.items():
            places = aligned and f"{name}_padded" not in batch
            if name == "labels" and name in counts:
                batch[name] = _filled(name, value, (most,), -100)
            elif name in counts:
                batch[name] = made = _filled(name, value, (bounds,), total)
                if places:
                    made[counts[name]] = total
                else:
                    steps = np.arange(1, bounds - counts[name]) * (0 if aligned else longest)
                    rows = value[-1:] + (value.new_tensor(steps) if is_tensor(value) else steps)
                    made[counts[name] + 1 :] = rows.clip(max=total)
            elif name.startswith("max_"):
                batch[name] = max(value, total if places else longest)
            elif name == "total_tokens":
                batch[name] = total
            elif tuple(getattr(value, "shape", ()))[: len(lead) + 1] == (*lead, width):
                shape = *lead, total, *value.shape[len(lead) + 1 :]
                batch[name] = made = _filled(name, value, shape, self._fill_of(name))
                if name == "position_ids":
                    steps = np.arange(total - width) % longest + self._option("position_ids_start", 0)
                    made[..., width:] = value.new_tensor(steps) if is_tensor(value) else steps

    def _option(self, name: str, default: Any) -> Any:
        """An option of the collator, or of a function that is wrapped by `functools.partial`."""
        return getattr(self.collator, "keywords", {}).get(name, getattr(self.collator, name, default))

    def _fill_of(self, name: str) -> Any:
        pads = self._option("pad_values", None) or {}
        known = {MAIN: "pad_token_id", "token_type_ids": "pad_token_type_id"}.get(name)
        own = getattr(self._option("tokenizer", None), known, None) if known else None
        if name == "values":
            own = self._option("padding_value", 0)
        return pads.get(name, _FILLS.get(name, 0) if own is None else own)


def _filled(name: str, value: Any, shape: tuple[int, ...], fill: Any) -> Any:
    """A tensor or an array of this shape that begins with `value`."""
    if name == "labels" and value.ndim == 1 and "float" in str(value.dtype):
        raise ValueError("labels are floats, one per row: no loss leaves out those of the filled rows")
    made = value.new_full(shape, fill) if is_tensor(value) else np.full(shape, fill, value.dtype)
    made[tuple(map(slice, value.shape))] = value
    return made
