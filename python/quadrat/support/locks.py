"""Locks of modules."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager


def new_lock() -> AbstractContextManager[bool]:
    """A lock that a thread may take again; it is free in a forked process, where the thread that held it is not."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]
    return lock
