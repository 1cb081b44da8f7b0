"""Locks."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import Any


def new_lock() -> AbstractContextManager[bool]:
    """A lock that a thread may take again; it is free in a forked process, where the thread that held it is not."""
    lock: Any = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: lock._is_owned() or lock._at_fork_reinit())
    return lock  # type: ignore[no-any-return]


class OneThread:
    """A lock that is free in a fork, where its thread is not. To a thread that has it already, it raises ValueError."""

    def __init__(self, refusal: str) -> None:
        self._refusal, self._process, self._lock, self._is_held = refusal, os.getpid(), threading.RLock(), False

    def __enter__(self) -> None:
        if self._process != os.getpid():
            self.__init__(self._refusal)  # type: ignore[misc]
        self._lock.acquire()
        if self._is_held:
            self._lock.release()
            raise ValueError(self._refusal)
        self._is_held = True

    def __exit__(self, *error: object) -> None:
        self._is_held = False
        self._lock.release()
