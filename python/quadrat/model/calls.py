"""The calls of a thread of models that compute no padding, and what is counted of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from quadrat.model.backbone import Flat, Path
from quadrat.model.prefixes import SharedRows
from quadrat.model.proof import Lockstep
from quadrat.model.rows import Rows
from quadrat.model.thread_state import THREAD
from quadrat.model.ways import Way
from quadrat.support.locks import new_lock

_counting = new_lock()


@dataclass
class Call:
    """A call of a model in this thread, and its modules that are taken apart now. Without a way it stays as it is."""

    root: Any
    way: Way | None = None
    shared: SharedRows | None = None
    proof: bool = False
    runs: bool = False
    flat: list[Flat] = field(default_factory=list)
    paths: dict[str, dict[Path, int]] = field(default_factory=dict)
    tokens: Rows | None = None
    frame: Any = None  # in which the model is called

    def place_of(self, module: Any) -> str | None:
        """The name of a module that is taken apart."""
        places = () if self.way is None else self.way.places
        return next((name for name in places if self.root.get_submodule(name) is module), None)


def calls_of_thread() -> list[Call]:
    """The calls that run in this thread: one, and within a proof two."""
    calls: list[Call] = THREAD.calls
    if calls and (frame := calls[-1].frame) is not None:
        running: Any = sys._getframe(1)
        while running is not None and running is not frame:
            running = running.f_back
        if running is None:  # an interrupt ended the call: torch calls no hook then
            calls.clear()
            THREAD.rows = THREAD.rows_of_tokens = None
    return calls


def result_of(call: Call, arguments: dict[str, Any], lockstep: Lockstep | None = None) -> Any:
    """The output of a model in a call of a proof."""
    calls, module, call.proof, call.runs = calls_of_thread(), call.root, True, False
    before = calls[:]
    calls[:] = [call]
    try:
        return module(**arguments) if lockstep is None else lockstep.call(lambda: module(**arguments))
    finally:
        calls[:] = before
        THREAD.rows = THREAD.rows_of_tokens = None


class Counts:
    """What the hooks of a model did."""

    def __init__(self) -> None:
        self.computed = self.removed = self.shared = 0
        self.ways: dict[str, None] = {}
        self.left: dict[str, None] = {}

    def add(self, rows: Rows) -> None:
        """Count the tokens of a call."""
        with _counting:
            self.computed += rows.total
            self.shared += rows.shared
            self.removed += rows.shape[0] * rows.shape[1] - rows.total - rows.shared
