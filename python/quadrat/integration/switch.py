"""Patches of other libraries: applied once, however often they are requested, and undone with the last request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple

from quadrat.support.locks import new_lock

_lock = new_lock()


class Swap(NamedTuple):
    """An attribute of another library and its replacement."""

    original: Any
    twin: Any
    address: tuple[str, str] | None = None  # module and name under which pickles find the original meanwhile


class Switch:
    """Objects of other libraries that are swapped together, and the patches that are in force.

    `swaps` gives them, each time. They are swapped under any name in all loaded modules of `packages`, and in `others`:
    classes, and modules that are not in `sys.modules`. Modules that are loaded while a patch is in force take the twins
    from there; undoing finds them, too.
    """

    def __init__(
        self, swaps: Callable[[], Iterable[Swap]], *packages: str, others: Callable[[], Iterable[Any]] = tuple
    ) -> None:
        self._find, self._packages, self._others = swaps, packages, others
        self._swaps: list[Swap] = []
        self._before: dict[Any, dict[str, Any]] = {}  # by place: originals and twins that were there, by name
        self._addresses: dict[Any, tuple[str, str]] = {}
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

    def _places(self, sought: set[int]) -> list[Any]:
        loaded = sys.modules.copy().items()
        modules = [module for name, module in loaded if name.partition(".")[0] in self._packages]
        places = dict.fromkeys([*(module for module in modules if isinstance(module, ModuleType)), *self._others()])
        # Not getattr, which a lazy module would answer by loading things.
        return [place for place in places if not sought.isdisjoint(map(id, list(vars(place).values())))]

    def _swap(self) -> None:
        self._swaps = list(self._find())
        twins = {id(swap.original): swap.twin for swap in self._swaps}
        known = twins.keys() | {id(swap.twin) for swap in self._swaps}
        for place in self._places(known):
            swapped = {name: value for name, value in list(vars(place).items()) if id(value) in known}
            self._before[place] = swapped
            for name, value in swapped.items():
                setattr(place, name, twins.get(id(value), value))
        for original, _, address in self._swaps:
            if address is not None:
                self._addresses[original] = original.__module__, original.__qualname__
                original.__module__, original.__qualname__ = address

    def _restore(self) -> None:
        originals = {id(swap.twin): swap.original for swap in self._swaps}
        for place in self._places(set(originals)):
            for name, value in list(vars(place).items()):
                if id(value) not in originals:
                    continue
                if name not in self._before.get(place, ()) and hasattr(type(place), "__getattr__"):
                    delattr(place, name)  # a lazy module looks for it again
                else:
                    setattr(place, name, self._before.get(place, {}).get(name, originals[id(value)]))
        for original, address in self._addresses.items():
            original.__module__, original.__qualname__ = address
        self._before.clear()
        self._addresses.clear()


class Patch:
    """A patch that can be undone: `with` undoes it at the end of the block, `undo()` at any time."""

    def __init__(self, name: str, *switches: Switch) -> None:
        self._name, self._switches, self._undone = name, switches, False
        with _lock:
            try:
                for switch in switches:
                    switch.add(self)
            except BaseException:
                self.undo()
                raise

    def undo(self) -> None:
        """Restore the libraries, unless another patch is in force. After an interrupt, a second call does the rest."""
        with _lock:
            self._undone = True
            for switch in self._switches:
                switch.remove(self)

    def __repr__(self) -> str:
        return f"<quadrat.{self._name}(): {'undone' if self._undone else 'in force'}>"

    def __enter__(self) -> Patch:
        """The patch, which is in force already. Raises RuntimeError when it has been undone."""
        if self._undone:
            raise RuntimeError(f"this patch has been undone: call quadrat.{self._name}() for a new one")
        return self

    def __exit__(self, *error: object) -> None:
        self.undo()
