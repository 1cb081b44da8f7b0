"""A plugin of pytest for builds with sanitizers: the process is copied only while its other threads sleep.

A copy has none of the other threads, but it has the locks that they held. The C library frees those of its allocator in
the copy. AddressSanitizer of gcc 12 does not, and then a copy (a worker of a DataLoader, say) waits for memory forever.
"""

import contextlib
import os
import threading
import time
from pathlib import Path

# No longer than this, because a thread may never sleep.
SECONDS = 1.0


def others_sleep() -> bool:
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if int(task.name) != threading.get_native_id() and _state(task) != "S":
                return False
    return True


def _state(task: Path) -> str:
    # The thread's name comes before, in parentheses, and may contain others.
    return (task / "stat").read_text().rpartition(") ")[2][0]


def settle() -> None:
    """Let the other threads go on until all of them sleep."""
    end = time.monotonic() + SECONDS
    while not others_sleep() and time.monotonic() < end:
        time.sleep(0.001)


def pytest_configure() -> None:
    os.register_at_fork(before=settle)
