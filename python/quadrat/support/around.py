"""Objects of others: collators around one, what lies within one, its attributes for a while, a running Trainer."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

_DEEPEST = 8  # a sampler may name itself as its sampler


class Around:
    """A collator around another one, which is asked for the public names that this one does not have."""

    collator: Any

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling look for methods of this object, before it has a collator.
        if name == "collator" or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.collator, name)


def within(value: Any, *names: str) -> Iterator[Any]:
    """An object, the one that it holds under the first of these names that it has, and so on."""
    for _ in range(_DEEPEST):
        yield value
        value = next(filter(None, (getattr(value, name, None) for name in names)), None)


def calling_trainer(method: str | None = None) -> tuple[Any, set[str]]:
    """The Trainer of which this method (None: any) is running, or None; and the names of that and all that it calls."""
    module, frame, names = sys.modules.get("transformers.trainer"), sys._getframe(1), set[str]()
    while module is not None and frame is not None:
        names.add(name := frame.f_code.co_name)
        if method in (None, name) and isinstance(trainer := frame.f_locals.get("self"), module.Trainer):
            return trainer, names
        frame = frame.f_back  # type: ignore[assignment]
    return None, names


@contextlib.contextmanager
def replaced(*attributes: tuple[Any, str, Any]) -> Iterator[None]:
    """Objects have these attributes meanwhile: each of (object, name, value)."""
    before = [(one, name, getattr(one, name)) for one, name, _ in attributes]
    try:
        for attribute in attributes:
            setattr(*attribute)
        yield
    finally:
        for attribute in before:
            setattr(*attribute)
