"""Values that several threads change, and that stay whole after an error, Ctrl-C or a signal handler."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")
Result = TypeVar("Result")


class Atomic(Generic[Value]):
    """A value that is replaced as a whole or not at all, by one thread at a time."""

    def __init__(self, value: Value, copied: Callable[[Value], Value]) -> None:
        """`copied`: an equal value that shares no memory with one, as far as a change writes to it."""
        self._value = value
        self._copied = copied
        self._lock = threading.RLock()
        self._changing = False

    def change(self, change: Callable[[Value], tuple[Value, Result]]) -> Result:
        """Replace the value by what `change` makes of it. Returns the result that comes with it.

        `change` may write to the value's memory, as long as the value stays what it was. When it raises, nothing
        changes. A signal handler or a finalizer may change the value while the same thread does: it is given a copy,
        and the change that it interrupted is made once more.
        """
        with self._lock:
            within, self._changing = self._changing, True
            try:
                while True:
                    before = self._value
                    after, result = change(self._copied(before) if within else before)
                    # One assignment, and no call since the value was looked at: handlers run after calls only.
                    if self._value is before:
                        self._value = after
                        return result
            finally:
                self._changing = within
