"""Locks of modules."""

import os
import threading
from typing import Any


def new_lock() -> Any:
    """A lock that a thread may take again; it is free in a forked process, where the thread that held it is not."""
    lock: Any = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: lock._is_owned() or lock._at_fork_reinit())
    return lock
