"""Counts of the batches that the collators of this process made."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from quadrat import _core

_MOST_CAUSES = 256
_OTHERS = "other causes"


class Stats(NamedTuple):
    """The batches of a process."""

    compiled: int  # made by compiled code
    remembered: int  # of these, made in one call, because a batch of the same kind had been made before
    fell_back: int  # made by transformers, or by TRL
    causes: dict[str, int]  # of those that fell back, how many by cause: the reason, and what to change
    compared: int = 0  # made both ways and compared, with QUADRAT_UNTESTED=compare; what transformers made was returned


class _Counts:
    def clear(self) -> None:
        self.lock = threading.Lock()
        # Of counting; and of the batches that compiled code made, known and planned ones, before a pause and in pauses.
        self.pauses, self.before, self.uncounted = 0, (0, 0), (0, 0)
        self.compared = 0
        self.causes: dict[str, list[Any]] = {}  # by kind, the first of its reasons and the number of batches
        _core.made_batches(True)


_observers: list[Callable[[str, str], object]] = []  # told of each batch that fell back or was compared, and the cause

_counts = _Counts()
_counts.clear()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_counts.clear)


def observe_batches(observer: Callable[[str, str], object]) -> None:
    """Has a function told of each batch from now on that "fell_back", with the cause, or was "compared"."""
    _observers.append(observer)


def count_fallback(kind: str, cause: str) -> bool:
    """Adds a batch that fell back. Returns whether it is the first with a cause of this kind."""
    with _counts.lock:
        if not counting():
            return False
        first = kind not in _counts.causes
        if first and len(_counts.causes) >= _MOST_CAUSES:
            kind, cause, first = _OTHERS, _OTHERS, False
        cause, _ = known = _counts.causes.setdefault(kind, [cause, 0])
        known[1] += 1
    for observer in _observers:
        observer("fell_back", cause)
    return first


def count_compared() -> None:
    """Adds a batch that was made both ways."""
    with _counts.lock:
        _counts.compared += (counts := counting())
    for observer in _observers if counts else ():
        observer("compared", "")


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Batches that are made meanwhile do not count."""
    with _counts.lock:
        if counting():
            _counts.before = _core.made_batches(False)
        _counts.pauses += 1
    try:
        yield
    finally:
        with _counts.lock:
            _counts.pauses -= 1
            if counting():  # of pauses that overlap, the last one
                numbers = zip(_core.made_batches(False), _counts.before, _counts.uncounted, strict=True)
                known, planned = (now - before + uncounted for now, before, uncounted in numbers)
                _counts.uncounted = known, planned


def counting() -> bool:
    """True if batches count."""
    return _counts.pauses == 0


def stats(*, reset: bool = False) -> Stats:
    """How many batches the collators of this process made, and which of them transformers made, and why.

    Batches that worker processes make are counted there. `quadrat run` adds up those of all processes.

    Args:
        reset: whether to begin again at 0.

    Returns:
        `compiled`, `remembered`, `fell_back` and `compared`: numbers of batches; `causes`: a dict of them by cause.

    Examples:
        >>> import quadrat
        >>> before = quadrat.stats(reset=True)
        >>> collator = quadrat.DataCollatorWithFlattening()
        >>> batches = [collator([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}]) for _ in range(3)]
        >>> quadrat.stats()
        Stats(compiled=3, remembered=2, fell_back=0, causes={}, compared=0)
    """
    with _counts.lock:
        numbers = _core.made_batches(reset)
        numbers = numbers if counting() else _counts.before
        remembered, planned = (number - left_out for number, left_out in zip(numbers, _counts.uncounted, strict=True))
        causes = {str(cause): int(batches) for cause, batches in _counts.causes.values()}
        compared = _counts.compared
        if reset:
            _counts.before, _counts.uncounted, _counts.causes, _counts.compared = (0, 0), (0, 0), {}, 0
    return Stats(planned + remembered, remembered, sum(causes.values()), causes, compared)
