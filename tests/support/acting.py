"""Parts of features that do something when they are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Lazy(Mapping[str, Any]):
    """A mapping that acts when it is asked."""

    def __init__(self, row: Any, act: Callable[[], None]) -> None:
        self._row, self._act = row, act

    def __getitem__(self, name: str) -> Any:
        self._act()
        return self._row[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)


class Lookalike:
    """A key that is compared with another, because it has the same hash, and is never equal."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._hash, self._act = hash(name), act

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        self._act()
        return False
