"""Patches of other libraries: applied once, however often they are requested, and undone with the last request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

_lock = threading.RLock()


class Switch:
    """One part of another library, and the patches of it that are in force.

    Args:
        swap: puts quadrat's code in.
        restore: puts the library's own code back.
    """

    def __init__(self, swap: Callable[[], None], restore: Callable[[], None]) -> None:
        self._swap, self._restore = swap, restore
        self._in_force: list[Patch] = []

    def add(self, patch: Patch) -> None:
        """Patch the library, unless that has been done."""
        self._in_force.append(patch)  # first, so that `remove` restores what is swapped when the rest raises
        if len(self._in_force) == 1:
            self._swap()

    def remove(self, patch: Patch) -> None:
        """Restore the library, unless another patch is in force. A second call does what the first one left undone."""
        if patch in self._in_force:
            if len(self._in_force) == 1:
                self._restore()
            self._in_force.remove(patch)


class Patch:
    """A patch that can be undone: `with` undoes it at the end of the block, `undo()` at any time."""

    def __init__(self, name: str, *switches: Switch) -> None:
        self._name, self._switches, self._undone = name, switches, False
        with _lock:
            try:
                for switch in switches:
                    switch.add(self)
            except BaseException:
                for switch in switches:
                    switch.remove(self)
                raise

    def undo(self) -> None:
        """Restore the libraries, unless another patch is in force. After an interrupt, a second call does the rest."""
        with _lock:
            self._undone = True
            for switch in self._switches:
                switch.remove(self)

    def __repr__(self) -> str:
        """The function that applied it, and whether it is in force."""
        return f"<quadrat.{self._name}(): {'undone' if self._undone else 'in force'}>"

    def __enter__(self) -> Patch:
        """The patch, which is in force already.

        Raises:
            RuntimeError: when it has been undone.
        """
        if self._undone:
            raise RuntimeError(f"this patch has been undone: call quadrat.{self._name}() for a new one")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Undo the patch."""
        self.undo()
