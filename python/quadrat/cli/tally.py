"""Counts of a process of `quadrat run`, and the folder where it leaves them for the report."""

import contextlib
import json
import math
import multiprocessing
import os
import sys
import time
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import quadrat
from quadrat.cli.batch_sizes import COUNTED, UNLABELLED, Sizes, is_unlabelled, sizes_of
from quadrat.cli.command import complain
from quadrat.cli.run import VARIABLE
from quadrat.cli.waits import Counts, Waits, is_of_pipeline
from quadrat.support.counts import counting

_EVERY = 1.0  # seconds between the numbers that a worker leaves
OPTIONS = Namespace(**json.loads(os.environ[VARIABLE]))  # of the command, and what `run` adds to them


class Tally(Waits):
    """Counts of the batches of this process, too; a fork begins anew, in the same object."""

    def __init__(self) -> None:
        super().__init__()
        self.options: Counter[str] = Counter()  # how many Trainers, loaders and pipelines each of them met
        self.elsewhere: Counter[str] = Counter()  # batches, rows and tokens of pipelines, and of tokenizers in loops
        self.said: set[str] = set()  # of loaders
        self.written = 0.0  # when numbers were left last
        self.is_done = False

    def add(self, batch: Any, collator: Any, _: Any, seconds: float) -> None:
        """Adds a batch that a collator made in this time, see `count_calls`."""
        if not counting():
            return
        options = getattr(collator, "pad_to_multiple_of", None), getattr(collator, "_completions", 1)
        sizes, unlabelled, own = sizes_of(batch, *options), is_unlabelled(batch), self.own
        own.computed, own.is_counted, own.counts = sizes.computed, True, self.counts()
        with self.lock:
            self._add(own.counts, sizes, seconds=seconds, unlabelled=unlabelled)
        if unlabelled:
            say_once("unlabelled", f"a batch has {UNLABELLED}: look at what truncates rows and ignores labels")
        self._leave_at_times()

    def add_of_loader(self, fetcher: Any, batch: Any) -> None:
        """Adds a batch of a loader, unless a collator has added it, or a pipeline does."""
        if counting() and not self.own.is_counted and not is_of_pipeline(fetcher):
            with contextlib.suppress(Exception):  # a batch of any kind
                sizes = sizes_of(getattr(batch, "noted", batch), None)  # a batch of a stream comes with its place
                with self.lock:
                    self._add(self.counts(), sizes, others=sizes.computed > 0)
        self._leave_at_times()

    @staticmethod
    def _add(counts: Counts, sizes: Sizes, **more: float) -> None:
        numbers = {"computed": sizes.computed, "tokens": sizes.tokens, "cut": sizes.cut}
        counts["sums"].update(numbers, sized=sizes.computed > 0, unknown=sizes.is_unknown, **more)
        counts["lengths"].update(sizes.lengths)
        counts["rows"][len(sizes.lengths)] += 1
        if sizes.cut:
            counts["widths"][sizes.width] += 1

    def _leave_at_times(self) -> None:
        """A worker may end without notice."""
        if os.getpid() != OPTIONS.process and time.monotonic() > self.written + _EVERY:
            with contextlib.suppress(OSError):
                _leave()

    def add_elsewhere(self, where: str, sizes: Sizes) -> None:
        """Adds a batch that neither a collator nor a loader made."""
        found = (1, len(sizes.lengths), sizes.computed, sizes.tokens)
        if counting():
            with self.lock:
                self.made["sums"]["unknown"] += sizes.is_unknown
                if sizes.computed:
                    names = (f"{where} {name}" for name in COUNTED)
                    self.elsewhere.update(dict(zip(names, found, strict=True)))

    def recount(self, batch: Any) -> None:
        """Takes back the tokens of this thread's last batch, which was filled since, for those it has."""
        shape = batch["attention_mask" if "attention_mask" in batch else "input_ids"].shape
        less = self.own.computed - math.prod(shape)
        with self.lock:
            self.own.counts["sums"].update(computed=-less)
        self.own.computed -= less

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        with self.lock:
            counts = {"options": self.options.copy(), "elsewhere": self.elsewhere.copy()}
        made = quadrat.stats()
        batches = made.compiled + made.fell_back
        is_worker = multiprocessing.parent_process() is not None
        return {
            **made._asdict(),
            **counts,
            **super().as_dict(),
            "workers": int(is_worker and batches > 0),
            "batches_of_workers": batches * is_worker,
            "cpu_seconds": time.process_time(),
            "delayed": _delayed(),
        }


TALLY = Tally()


def _delayed() -> float:
    """The seconds that the threads of this process waited for a processor; 0 where the system does not say."""
    nanoseconds = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for path in Path("/proc/self/task").glob("*/schedstat"):
            nanoseconds += int(path.read_text().split()[1])
    return nanoseconds / 1e9


def say(text: str) -> None:
    """Writes a line to standard error."""
    if not OPTIONS.quiet and sys.stderr is not None:
        complain(f"quadrat run: {text}")


def say_once(name: str, text: str) -> None:
    """Says what no process of this run has said under this name."""
    with contextlib.suppress(OSError):
        (_folder() / name).touch(exist_ok=False)
        say(text)


def _folder() -> Path:
    """Where the processes of this run leave what others read. Raises OSError."""
    folder = Path(OPTIONS.folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")
    return folder


def _leave() -> None:
    """Leaves the numbers of this process in a file. Raises OSError."""
    folder, own = _folder(), os.getpid()
    TALLY.written = time.monotonic()
    name = f"main-{own}.json" if own == OPTIONS.process else f"{own}.json"
    part = folder / f"{name}.part"
    part.write_text(json.dumps(TALLY.as_dict()))
    part.rename(folder / name)


def finish() -> None:
    """Leaves the numbers of this process, once."""
    if not TALLY.is_done:
        TALLY.is_done = True
        with contextlib.suppress(OSError):
            _leave()
