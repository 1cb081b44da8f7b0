"""The base of collators that call another one."""

from __future__ import annotations

from typing import Any


class Around:
    """A collator around another one, which is asked for all that this one does not have."""

    collator: Any

    def __getattr__(self, name: str) -> Any:
        if name == "collator":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.collator, name)
