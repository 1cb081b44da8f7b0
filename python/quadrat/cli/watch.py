"""In the processes of `quadrat run`: patches libraries when they have been imported, and counts until the end."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import json
import multiprocessing.util
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from quadrat.cli.run import VARIABLE, Options
from quadrat.cli.run_report import merged, show
from quadrat.deferred.batch import DeferredBatch
from quadrat.support.counts import stats

_EVERY = 1.0  # seconds between the numbers that a worker leaves
OPTIONS = Options(**json.loads(os.environ[VARIABLE]))


class _Seen:
    """What the collators of this process did."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seconds, self.computed, self.tokens = 0.0, 0, 0
        self.lengths: Counter[int] = Counter()
        self.written = 0.0  # when numbers were left last
        self.is_done = False

    def add(self, seconds: float, batch: Any) -> None:
        """Adds a batch and the time that it took."""
        computed, lengths = _sizes(batch)
        with self.lock:
            self.seconds += seconds
            self.computed += computed
            self.tokens += sum(lengths)
            self.lengths.update(lengths)
        if os.getpid() != OPTIONS.process and time.monotonic() > self.written + _EVERY:
            with contextlib.suppress(OSError):
                _leave()  # a worker may end without notice

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        compiled, remembered, fell_back, causes = stats()
        return {
            "compiled": compiled,
            "remembered": remembered,
            "fell_back": fell_back,
            "causes": causes,
            "seconds": self.seconds,
            "computed": self.computed,
            "tokens": self.tokens,
            "lengths": dict(self.lengths),
            "workers": int(multiprocessing.parent_process() is not None and compiled + fell_back > 0),
            "batches_of_workers": (compiled + fell_back) * (multiprocessing.parent_process() is not None),
        }


_seen = _Seen()


def _sizes(batch: Any) -> tuple[int, list[int]]:
    """How many tokens a model computes for a batch, and the lengths of its rows; nothing of a batch without tokens."""
    if not isinstance(batch, Mapping) or isinstance(batch, DeferredBatch):  # which would be made here
        return 0, []
    mask, ids = batch.get("attention_mask"), batch.get("input_ids")
    if mask is not None and getattr(mask, "ndim", 0) == 2:
        return mask.numel() if hasattr(mask, "numel") else mask.size, list(map(int, mask.sum(1).tolist()))
    bounds = batch.get("cu_seq_lens_q")
    if ids is None or bounds is None or getattr(ids, "ndim", 0) != 2:
        return 0, []
    ends = bounds.tolist()
    return ids.shape[1], [end - begin for begin, end in itertools.pairwise(ends)]


def loaded(name: str) -> None:
    """Patches a library that has just been imported."""
    try:
        _AFTER[name]()
    except Exception as error:  # the script goes on without
        say(f"{name} is not patched: {type(error).__name__}: {error}")


def say(text: str) -> None:
    """Writes a line to standard error."""
    if not OPTIONS.quiet and sys.stderr is not None:
        sys.stderr.write(f"quadrat run: {text}\n")


def _patch_transformers() -> None:
    import quadrat
    from quadrat.collators._base import Collator

    quadrat.patch_transformers(datasets=False)
    original = Collator._collate

    @functools.wraps(original)
    def timed(self: Any, features: Any, framework: Any) -> Any:
        start = time.perf_counter()
        batch = original(self, features, framework)
        _seen.add(time.perf_counter() - start, batch)
        return batch

    Collator._collate = timed  # type: ignore[method-assign]
    if os.getpid() != OPTIONS.process:
        atexit.register(finish)
    multiprocessing.util.register_after_fork(_seen, _after_fork)


def _patch_datasets() -> None:
    import quadrat

    quadrat.patch_datasets()


def _patch_trl() -> None:
    import quadrat

    quadrat.patch_trl()


def _patch_trainer() -> None:
    if OPTIONS.max_tokens is None and not OPTIONS.group_by_length:
        return
    from transformers import Trainer

    train = Trainer.train

    @functools.wraps(train)
    def prepared(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(self, "_quadrat_prepared", False):
            self._quadrat_prepared = True
            _prepare(self)
        return train(self, *args, **kwargs)

    Trainer.train = prepared


def _prepare(trainer: Any) -> None:
    """Does with a Trainer what the options say, or says why not."""
    import quadrat

    main = trainer.args.process_index == 0
    if OPTIONS.max_tokens is None:
        if hasattr(trainer.args, "train_sampling_strategy"):
            trainer.args.train_sampling_strategy = "group_by_length"
        else:
            trainer.args.group_by_length = True
        return
    try:
        made: Any = quadrat.batch_by_tokens(trainer, OPTIONS.max_tokens or "auto", shapes=OPTIONS.shapes)
    except (TypeError, ValueError) as error:
        made = f"batches are as before: {error}"
    if main:
        say(str(made))


_AFTER: dict[str, Callable[[], None]] = {
    "transformers": _patch_transformers,
    "datasets": _patch_datasets,
    "trl": _patch_trl,
    "transformers.trainer": _patch_trainer,
}


def _after_fork(seen: _Seen) -> None:
    """A worker counts for itself, and leaves the numbers when it ends."""
    seen.__init__()  # type: ignore[misc]
    multiprocessing.util.Finalize(None, finish, exitpriority=0)


def _leave() -> None:
    """Leaves the numbers of this process in a file. Raises OSError."""
    folder, own = Path(OPTIONS.folder), os.getpid()
    if not _seen.written:
        folder.mkdir(mode=0o700, exist_ok=True)
        if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to somebody else")
    _seen.written = time.monotonic()
    name = f"main-{own}.json" if own == OPTIONS.process else f"{own}.json"
    part = folder / f"{name}.part"
    part.write_text(json.dumps(_seen.as_dict()))
    part.rename(folder / name)


def finish() -> None:
    """Leaves the numbers of this process; the last process of a script makes the report."""
    if _seen.is_done:
        return
    _seen.is_done = True
    folder = Path(OPTIONS.folder)
    try:
        _leave()
        if os.getpid() != OPTIONS.process or len(list(folder.glob("main-*.json"))) < OPTIONS.ranks:
            return
        (folder / "report").touch(exist_ok=False)  # of several last ones, one makes the report
    except OSError:
        return
    total = merged(json.loads(path.read_text()) for path in folder.glob("*.json"))
    shutil.rmtree(folder, ignore_errors=True)
    if OPTIONS.report is not None:
        Path(OPTIONS.report).write_text(json.dumps(total, indent=2) + "\n")
    if not OPTIONS.quiet and sys.stderr is not None:
        show(total, sys.stderr)
