"""Objects around others: the base of collators that call another one, and what lies within an object."""

from collections.abc import Iterator
from typing import Any

_DEEPEST = 8  # a sampler may name itself as its sampler


class Around:
    """A collator around another one, which is asked for all that this one does not have."""

    collator: Any

    def __getattr__(self, name: str) -> Any:
        if name == "collator":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.collator, name)


def within(value: Any, *names: str) -> Iterator[Any]:
    """An object, the one that it holds under the first of these names that it has, and so on."""
    for _ in range(_DEEPEST):
        yield value
        value = next(filter(None, (getattr(value, name, None) for name in names)), None)
