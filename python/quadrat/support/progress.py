"""A progress bar on a terminal, for work that takes a while."""

from __future__ import annotations

import sys
from typing import Any

_QUIET = 1.0  # seconds before there is a progress bar


class NoBar:
    """A progress bar that shows nothing."""

    def __enter__(self) -> NoBar:
        return self

    def __exit__(self, *error: object) -> None: ...

    def update(self, rows: int) -> None:
        """Count rows."""


def progress_bar(rows: int, what: str) -> Any:
    """A progress bar of so many rows; it shows nothing where tqdm is missing, and where nobody sees it."""
    if hasattr(sys.stderr, "isatty") and not sys.stderr.isatty():  # tqdm takes longer to find out
        return NoBar()
    try:
        from tqdm import tqdm  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        return NoBar()
    stream = getattr(sys.stderr, "raw", sys.stderr)  # commands escape what moves the cursor
    return tqdm(total=rows, desc=what, unit="row", delay=_QUIET, file=stream)
