"""In the processes of `quadrat run`: patches libraries when they have been imported, and counts until the end."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import math
import multiprocessing.util
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import quadrat
from quadrat.cli.run import VARIABLE, Options
from quadrat.cli.run_report import merged, show
from quadrat.deferred.batch import DeferredBatch
from quadrat.support.counts import counting

_EVERY = 1.0  # seconds between the numbers that a worker leaves
OPTIONS = Options(**json.loads(os.environ[VARIABLE]))


class _Seen:
    """What the collators of this process did."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.own = threading.local()  # `computed`: the tokens of the last batch of a thread
        self.seconds, self.computed, self.tokens = 0.0, 0, 0
        self.lengths: Counter[int] = Counter()
        self.written = 0.0  # when numbers were left last
        self.is_done = False

    def add(self, seconds: float, batch: Any) -> None:
        """Adds a batch and the time that it took."""
        computed, lengths = _sizes(batch)
        self.own.computed = computed
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
        made = quadrat.stats()
        batches = made.compiled + made.fell_back
        is_worker = multiprocessing.parent_process() is not None
        return {
            **made._asdict(),
            **{name: getattr(self, name) for name in ("seconds", "computed", "tokens", "lengths")},
            "workers": int(is_worker and batches > 0),
            "batches_of_workers": batches * is_worker,
        }


_seen = _Seen()


def _sizes(batch: Any) -> tuple[int, list[int]]:
    """How many tokens a model computes for a batch, and the lengths of its rows; nothing of a batch without tokens."""
    if not isinstance(batch, Mapping) or isinstance(batch, DeferredBatch):  # which would be made here
        return 0, []
    mask: Any = batch.get("attention_mask")
    ids: Any = batch.get("input_ids")
    bounds = batch.get("cu_seq_lens_q")
    if getattr(mask, "ndim", 0) == 2:
        return math.prod(mask.shape), (mask != 0).sum(1).tolist()  # packed rows count their sequences in it
    if bounds is None or getattr(ids, "ndim", 0) != 2:
        return 0, []
    return ids.shape[1], np.diff(bounds.tolist()).tolist()


def loaded(name: str) -> None:
    """Patches a library that has just been imported."""
    try:
        if name == "transformers":
            _patch_transformers()
        elif name == "transformers.trainer":
            _patch_trainer()
        else:
            getattr(quadrat, f"patch_{name}")()
    except Exception as error:  # the script goes on without
        say(f"{name} is not patched: {type(error).__name__}: {error}")


def say(text: str) -> None:
    """Writes a line to standard error."""
    if not OPTIONS.quiet and sys.stderr is not None:
        sys.stderr.write(f"quadrat run: {text}\n")


def _patch_transformers() -> None:
    from quadrat.batching.shapes import FixedShapes
    from quadrat.collators._base import Collator

    quadrat.patch_transformers(datasets=False)
    original = Collator._collate

    @functools.wraps(original)
    def timed(self: Any, features: Any, framework: Any) -> Any:
        start = time.perf_counter()
        batch = original(self, features, framework)
        if counting():
            _seen.add(time.perf_counter() - start, batch)
        return batch

    fill = FixedShapes.__call__

    @functools.wraps(fill)
    def filled(self: Any, features: Any) -> Any:
        _seen.own.computed = 0
        batch = fill(self, features)
        if _seen.own.computed:  # the batch was counted before it was filled
            with _seen.lock:
                _seen.computed += math.prod(batch["input_ids"].shape[:2]) - _seen.own.computed
        return batch

    Collator._collate = timed  # type: ignore[method-assign]
    FixedShapes.__call__ = filled  # type: ignore[method-assign]
    if os.getpid() != OPTIONS.process:
        atexit.register(finish)
    multiprocessing.util.register_after_fork(_seen, _after_fork)


class _Train:
    """`Trainer.train`. It is looked up before each training, which is then prepared; no frame appears in tracebacks."""

    def __init__(self, train: Any) -> None:
        self._train = train

    def __get__(self, trainer: Any, cls: type | None = None) -> Any:
        if trainer is not None and not getattr(trainer, "_quadrat_prepared", False):
            trainer._quadrat_prepared = True
            _prepare(trainer)
        return self._train.__get__(trainer, cls)


def _patch_trainer() -> None:
    from transformers import Trainer

    from quadrat.integration.switch import Patch, Swap, Switch, followed_by

    swaps = [Swap(Trainer.train, _Train(Trainer.train))]
    if OPTIONS.evaluation:
        swaps.append(Swap(Trainer.__init__, followed_by(Trainer.__init__, _sort_evaluation)))
    Patch("run", Switch(lambda: swaps, others=lambda: [Trainer]))


def _sort_evaluation(trainer: Any) -> None:
    from quadrat.integration.evaluate_by_length import evaluate_by_length

    try:
        evaluate_by_length(trainer)
    except ValueError as error:
        _say_of(trainer, f"evaluation is as before: {error}")


def _prepare(trainer: Any) -> None:
    """Before a training: the batches that were asked for, and a look whether the model keeps packed rows apart."""
    from quadrat.integration.batch_by_tokens import joins_rows
    from quadrat.varlen.packing_check import warn_if_rows_mix

    collator = trainer.data_collator
    is_of_trl = "trl" in type(collator).__module__.split(".")  # patch_trl looks at those
    if trainer.args.process_index == 0 and joins_rows(collator) and not is_of_trl:
        warn_if_rows_mix(trainer.model, collator)
    if OPTIONS.max_tokens is not None:
        try:
            said = str(quadrat.batch_by_tokens(trainer, OPTIONS.max_tokens or "auto", shapes=OPTIONS.shapes))
        except (TypeError, ValueError) as error:
            said = f"batches are as before: {error}"
        _say_of(trainer, said)
    elif OPTIONS.group_by_length:
        _group(trainer)


def _group(trainer: Any) -> None:
    """Groups training rows alone: with its own option, Trainer also evaluates in another order, and keeps that."""
    args, sampler_of = trainer.args, trainer._get_train_sampler
    new = hasattr(args, "train_sampling_strategy")
    name, value = ("train_sampling_strategy", "group_by_length") if new else ("group_by_length", True)

    def grouped(*given: Any, **options: Any) -> Any:
        before = getattr(args, name)
        setattr(args, name, value)
        try:
            return sampler_of(*given, **options)
        finally:
            setattr(args, name, before)

    trainer._get_train_sampler = grouped


def _say_of(trainer: Any, text: str) -> None:
    if trainer.args.process_index == 0:
        say(text)


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
        show(total, sys.stderr, advise=OPTIONS.max_tokens is None)
