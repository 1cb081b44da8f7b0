"""Padded batches taken apart into rows that lie side by side, and put together again."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from itertools import groupby
from typing import Any

import torch

from quadrat.model.merged_attention import Meeting, meetings
from quadrat.ops.tokens import layout_now, put, take


class Rows:
    """The rows of a padded batch, `[rows, width]`, side by side: `[1, total]`.

    Attributes:
        shape: rows and width of the padded batch.
        lengths: int64 `[number of rows]`, of the rows as they lie side by side.
        cells: int64 `[total]`, the place of each token in the flattened padded batch.
        longest: the length of the longest row.
    """

    shared = 0  # tokens that are not computed because other rows have them, too

    def __init__(self, shape: tuple[int, int], lengths: Any, cells: Any, longest: int) -> None:
        self.shape, self.lengths, self.cells, self.longest = shape, lengths, cells, longest
        self.total = len(cells)
        # Patterns with the length up to which each says nothing, and its window, if it is one.
        self._patterns: list[tuple[Any, int, int | None]] = []
        self._meetings: dict[tuple[int | None, bool], list[Meeting]] = {}

    @classmethod
    def of_mask(cls, mask: Any) -> Rows:
        """The tokens of an attention mask, `[rows, width]` bools; on a CPU the longest rows come first."""
        layout, shape = layout_now(mask), (mask.shape[0], mask.shape[1])
        lengths = layout.lengths.long()
        if mask.is_cuda:
            return cls(shape, lengths, layout.indices, layout.longest)
        lengths, order = lengths.sort(descending=True, stable=True)
        places = layout_now(mask[order]).indices
        cells = order[places // mask.shape[1]] * mask.shape[1] + places % mask.shape[1]
        return cls(shape, lengths, cells, layout.longest)

    def last_columns(self, columns: int) -> tuple[Rows, Any]:
        """The tokens of the last columns of the padded batch, to be put together; and which tokens these are."""
        count, width = self.shape
        places = (self.cells % width >= width - columns).nonzero()[:, 0]
        return Rows((count, columns), self.lengths[:0], of_last_columns(self.cells[places], width, columns), 0), places

    @functools.cached_property
    def groups(self) -> list[tuple[int, int]]:
        """(number of rows, length) of rows of one length that follow each other."""
        return [(len(list(same)), length) for length, same in groupby(self.lengths.tolist()) if length]

    @functools.cached_property
    def bounds(self) -> Any:
        """int32 `[number of rows + 1]`, where rows begin and end in the flat batch."""
        return torch.nn.functional.pad(self.lengths.cumsum(0), (1, 0)).int()

    @property
    def firsts(self) -> Any:
        """Where rows with tokens begin in the flat batch."""
        return (self.lengths.cumsum(0) - self.lengths)[self.lengths > 0]

    @functools.cached_property
    def upright(self) -> Rows:
        """The same tokens in a padded batch with padding on the right, as wide as the longest row."""
        real = self.real
        return Rows(real.shape, self.lengths, real.flatten().nonzero()[:, 0], self.longest)

    @property
    def real(self) -> Any:
        """Bool `[number of rows, longest]`: the real tokens of an upright batch."""
        return torch.arange(self.longest, device=self.cells.device) < self.lengths[:, None]

    def take(self, values: Any, lead: int = 0) -> Any:
        """`[rows, width, ...]` to `[1, total, ...]`; with `lead` dimensions before both."""
        if lead:
            return torch.stack([self.take(part) for part in values])
        return take(values.expand(*self.shape, *values.shape[2:]), self.cells, 2)[None]

    def put(self, values: Any) -> Any:
        """`[1, total, ...]` to `[rows, width, ...]`, zeros at padding."""
        return put(values[0], self.cells, self.shape)

    def allowed(self, allows: Callable[..., Any]) -> Any:
        """Bool `[1, 1, longest, longest]`: which tokens of a row see which, by transformers' mask function."""
        places = torch.arange(self.longest, device=self.cells.device)
        zero = torch.zeros((), dtype=torch.int64, device=places.device)
        allowed = allows(zero, zero, places[:, None], places[None])
        return allowed.expand(self.longest, self.longest)[None, None]

    def pattern(self, allows: Callable[..., Any]) -> Any:
        """As `allowed`; None where a token attends to all before it, or to all of its row."""
        allowed = self.allowed(allows)
        plain = torch.ones_like(allowed) if bool(allowed[..., 0, :2].all()) else torch.ones_like(allowed).tril()
        differs = allowed != plain
        # Of rows up to this length nothing differs: the later of both tokens of each pair that does.
        later = (differs.tril().any(3) | differs.triu().any(2)).flatten().nonzero()
        if not len(later):
            return None
        window = int(later[0])
        near = torch.ones_like(allowed).tril().triu(1 - window)
        self._patterns.append((allowed, window, window if torch.equal(allowed, near) else None))
        return allowed

    def merges(self, pattern: Any, *, causal: bool) -> list[Meeting] | None:
        """Which runs of tokens meet in attention with this pattern; None for one that is not a window."""
        window = None if pattern is None else self._known(pattern)[1]
        if pattern is not None and (window is None or not causal):
            return None
        key = window, causal
        if key not in self._meetings:
            self._meetings[key] = self._meet(window, causal)
        return self._meetings[key]

    def _meet(self, window: int | None, causal: bool) -> list[Meeting]:
        lengths = [length for length in self.lengths.tolist() if length]
        starts = [0, *itertools.accumulate(lengths)][:-1]
        return meetings(starts, lengths, [-1] * len(lengths), [0] * len(lengths), window, causal=causal)

    def plain_until(self, pattern: Any) -> int:
        """The length up to which rows need no pattern."""
        return self.longest if pattern is None else self._known(pattern)[0]

    def _known(self, pattern: Any) -> tuple[int, int | None]:
        known = ((until, window) for mask, until, window in self._patterns if pattern.is_set_to(mask))
        return next(known, (0, None))


def of_last_columns(cells: Any, width: int, columns: int) -> Any:
    """Places in the last columns of a batch, of places in the whole."""
    return cells // width * columns + cells % width - (width - columns)
