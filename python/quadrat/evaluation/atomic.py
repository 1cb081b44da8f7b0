"""Values that several threads change, and that stay whole after an error, Ctrl-C or a signal handler."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")

# Whether one thread at a time runs Python: then nothing comes between two lines that call nothing, lock or not.
HAS_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()


class Atomic:
    """Base class: `_held` is replaced as a whole or not at all, by one thread at a time."""

    _held: Any
    _changing = False

    def _copied(self, held: Any) -> Any:
        """An equal value that shares no memory with this one, as far as a change writes to it."""
        return copy.deepcopy(held)

    def _change(self, change: Callable[..., tuple[Any, Result]], *given: Any) -> Result:
        """Replace the value by what `change` makes of it and of what is given. Returns the result that comes with it.

        `change` may write to the value's memory, as long as the value stays what it was. When it raises, nothing
        changes. A signal handler or a finalizer may change the value while the same thread does: it is given a copy,
        and the change that it interrupted is made once more.
        """
        with vars(self).get("_lock") or vars(self).setdefault("_lock", threading.RLock()):  # made when first needed
            within, self._changing = self._changing, True
            try:
                while True:
                    before = self._held
                    after, result = change(self._copied(before) if within else before, *given)
                    # One assignment, and no call since the value was looked at: handlers run after calls only.
                    if self._held is before:
                        self._held = after
                        return result
            finally:
                self._changing = within

    def _options(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_held", "_lock", "_changing")}
