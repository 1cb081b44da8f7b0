"""The events of `quadrat run`: each is a line of JSON in a file of its process, and the report adds them up.

An event has the name of what it belongs to (`of`: a loop, a process, or a subject such as "options"), and values:
numbers, which are added, and words or lists of them, which are counted.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_MOST_LINES = 20_000  # of a file; with more, they are replaced by their sums

Totals = dict[str, dict[str, Any]]  # by what events belong to, the sum or the Counter of each of their values


def add_events(totals: Totals, events: Iterable[dict[str, Any]]) -> None:
    """Adds events, or their sums, to totals."""
    for event in events:
        sums = totals.setdefault(event["of"], {})
        for name, value in event.items():
            if isinstance(value, (int, float)):
                sums[name] = sums.get(name, 0) + value
            elif name != "of":
                counts = value if isinstance(value, dict) else map(str, value if isinstance(value, list) else [value])
                sums.setdefault(name, Counter()).update(counts)


def read_events(folder: Path) -> tuple[Totals, int]:
    """The sums of the events of all processes that wrote in a folder, and the number of these processes."""
    totals: Totals = {}
    files = [*folder.glob("*.jsonl")]
    for file in files:
        with file.open() as lines:
            add_events(totals, map(json.loads, filter(lambda line: line.endswith("\n"), lines)))
    return totals, len(files)


class EventLog:
    """The file of this process; a fork begins another one."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._path: Path | None = None
        self._asked: set[str] = set()
        self._lines, self._most = 0, _MOST_LINES

    @property
    def process(self) -> str:
        """What events outside of loops belong to."""
        return f"{'process' if multiprocessing.parent_process() is None else 'worker'} {os.getpid()}"

    def write(self, of: str, **values: Any) -> None:
        """Adds an event; the script goes on if that is not possible."""
        with self._lock, contextlib.suppress(OSError):
            self._path = self._path or self._made_folder() / f"{os.getpid()}.jsonl"
            with self._path.open("ab", buffering=0) as file:  # a script may close what it did not open
                file.write(_line({"of": of, **values}))
            self._lines += 1
            if self._lines > self._most:
                self._add_up(self._path)

    def finish(self) -> None:
        """The main process ends: the last event is on the time of its processors, and for which it waited for them."""
        self.write("processors", cpu=time.process_time(), delayed=_delayed())

    def is_first(self, text: str) -> bool:
        """Whether no process of this run has asked this of the text."""
        if text in self._asked:
            return False
        self._asked.add(text)
        name = f"said-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        try:
            (self._made_folder() / name).touch(exist_ok=False)
        except OSError as error:
            return not isinstance(error, FileExistsError)
        return True

    def _made_folder(self) -> Path:
        """The folder of this run. Raises OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if hasattr(os, "getuid") and self._folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{self._folder} belongs to somebody else")
        return self._folder

    def _add_up(self, path: Path) -> None:
        """Replaces the lines of a file by their sums. Raises OSError."""
        totals: Totals = {}
        with path.open() as lines:
            add_events(totals, map(json.loads, lines))
        part = path.with_suffix(".part")
        part.write_bytes(b"".join(_line({"of": of, **sums}) for of, sums in totals.items()))
        part.replace(path)
        self._lines, self._most = len(totals), _MOST_LINES + 2 * len(totals)


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _delayed() -> float:
    """The seconds that the threads of this process waited for a processor; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return sum(int(path.read_text().split()[1]) for path in Path("/proc/self/task").glob("*/schedstat")) / 1e9
    return 0.0
