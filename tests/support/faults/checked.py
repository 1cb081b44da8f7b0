"""A work, what it gives when nothing is wrong, and the check of what it gives after a fault."""

import gc
import sys
from typing import Any

import torch

from support.works import States, Work, picture


def rows_of(features: Any) -> list[Any]:
    """The objects that features are made of."""
    if not isinstance(features, list):
        return []
    values = [value for row in features for value in row.values()]
    inner = [item for value in values if isinstance(value, list) for item in value]
    return [features, *features, *(item for item in (*values, *inner) if not isinstance(item, (int, float, str)))]


class Checked:
    """A work whose batches are known to be right.

    Attributes:
        before: the states of the generators from which `expected` is made.
        after: those that it leaves.
        expected: the picture of the batch.
    """

    def __init__(self, work: Work) -> None:
        self.work, self.name = work, work.name
        self.states = States(*([work.collator] if work.collator is not None else []))
        for _ in range(3):
            work.call()
        self.before = self.states.take()
        self.expected = picture(work.call())
        self.after = self.states.take()
        self._objects = rows_of(work.features)
        gc.collect()
        self._references = self._counts()

    def _counts(self) -> list[int]:
        return [sys.getrefcount(held) for held in self._objects]

    def again(self) -> None:
        self.states.restore(self.before)

    def check_states(self) -> str:
        """Generators are "as before" or "as after" the batch, or "apart": one so, one so."""
        now = self.states.take()
        as_before, as_after = States.same(now, self.before), States.same(now, self.after)
        assert all(a or b for a, b in zip(as_before, as_after, strict=True)), f"{self.name}: a generator is in between"
        return "as before" if all(as_before) else "as after" if all(as_after) else "apart"

    def check_next(self) -> None:
        """The next batch is right, and nothing is kept of the one before."""
        assert torch._C._len_torch_function_stack() == 0
        self.again()
        assert picture(self.work.call()) == self.expected, f"{self.name}: the next batch is another"
        assert all(States.same(self.states.take(), self.after)), f"{self.name}: the next batch draws otherwise"

    def check_references(self) -> None:
        gc.collect()
        assert self._counts() == self._references, f"{self.name}: references are left"
