"""Mappings of kinds that features may have."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from transformers import BatchEncoding


class Wrapped(Mapping[str, Any]):
    """A mapping of one's own around `held`."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __getitem__(self, name: str) -> Any:
        return self.held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


class Lazy(Wrapped):
    """Acts when it is asked for a value."""

    def __init__(self, held: Any, act: Callable[[], None]) -> None:
        super().__init__(held)
        self._act = act

    def __getitem__(self, name: str) -> Any:
        self._act()
        return super().__getitem__(name)


class Lookalike:
    """A key that acts when it is compared with another, because it has the same hash, and is never equal."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._hash, self._act = hash(name), act

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        self._act()
        return False


class Reordered(OrderedDict):  # type: ignore[type-arg]
    """The order of `keys` is not the order in which entries were made."""

    def __init__(self, row: Any) -> None:
        super().__init__(row)
        for key in reversed(list(row)):
            self.move_to_end(key)


class Encoding(BatchEncoding):
    """A class of one's own."""


def with_lists(row: Any) -> Any:
    """A list for whatever it does not have."""
    return defaultdict(list, row)


def encoding_around(data: Any) -> BatchEncoding:
    """A BatchEncoding that keeps its entries in this mapping itself."""
    encoding = BatchEncoding({})
    encoding.data = data
    return encoding
