"""The time that a loop waits for batches, and the time that its model computes, as `quadrat run` counts them.

A clock runs in `_next_data` of a loader's iterator, where a loop waits, and in `fetch`, which fetches rows and collates
them. Between two batches, the time is the model's. A pass over a loader in which an optimizer steps is training.
"""

import itertools
import threading
import time
import weakref
from typing import Any

from quadrat.cli.batch_sizes import values_of
from quadrat.cli.events import EventLog
from quadrat.support.counts import counting
from quadrat.support.wrappers import wrap_method

_PIPELINES = "transformers.pipelines."
_now = time.perf_counter
_numbers = itertools.count()


class Loop:
    """A pass over a loader, in the thread that iterates: its clocks write events."""

    def __init__(self, events: EventLog, iterator: Any, thread: "Thread") -> None:
        self.iterator = weakref.ref(iterator)
        # Whether the loop computes its last batch after it has asked for another one.
        self.reads_ahead, thread.reads_ahead = thread.reads_ahead, False
        self.is_over = False
        self._events, self.since = events, 0.0  # since it waits, or computes
        workers = [worker.pid for worker in getattr(iterator, "_workers", ())]
        self.name = f"loop {events.process} {next(_numbers)}"
        self._first = {"num_workers": [len(workers)], "worker_pids": workers}

    def receive(self) -> None:
        """The loop has its batch."""
        now = _now()
        self._events.write(self.name, waited=now - self.since, batches=1, **self._first)
        self._first, self.since = {}, now

    def end(self) -> None:
        """The loader has no other batch, or failed."""
        self.is_over, now = True, _now()
        if not self._first:
            self._events.write(self.name, waited=now - self.since)
        self.since = now

    def computed(self) -> None:
        """The model has computed the last batch, or a part of what it does with it."""
        now = _now()
        self._events.write(self.name, model=now - self.since)
        self.since = now


class Batch:
    """A batch while it is fetched and collated: when that began, and what is counted of it."""

    def __init__(self, of: str, fetcher: Any, began: float) -> None:
        self.of, self.fetcher, self.began, self.fetched = of, fetcher, began, 0.0
        self.values: dict[str, Any] = {}  # of its event, from the collator that made it


class Thread(threading.local):
    """What a thread of the script does."""

    waits: Loop | None = None  # for a batch of this loop
    computes: Loop | None = None  # a batch of this loop
    batch: Batch | None = None  # that it makes
    noted: dict[str, Any] | None = None  # in a collator of quadrat, values of the event of its batch
    reads_ahead = False  # accelerate begins a pass
    calls_model = False
    trainer: Any = None  # that trains

    def __init__(self) -> None:
        self.received: set[Loop] = set()  # loops that gave a batch since the last step
        self.ended: list[Loop] = []  # loops that read ahead, and compute their last batch


class LoopTiming:
    """The loops of a process."""

    def __init__(self, events: EventLog) -> None:
        self.events = events
        self.begin()

    def begin(self) -> None:
        """A process begins, or a fork."""
        self.thread = Thread()
        self.loops: weakref.WeakKeyDictionary[Any, Loop] = weakref.WeakKeyDictionary()

    @property
    def of(self) -> str:
        """What an event of this thread belongs to: the loop that computes, or the process."""
        return self.events.process if self.thread.computes is None else self.thread.computes.name

    def watch_torch(self) -> None:
        """Has the loaders of torch tell of batches, and optimizers of steps."""
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data import dataloader
        from torch.utils.data._utils import fetch

        register_optimizer_step_post_hook(self._step)
        fetch._BaseDatasetFetcher.collate_fn = _CollateFn(self)
        for cls in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            wrap_method(cls, "fetch", self._fetch, self._fetched)
        self.watch_iterators(dataloader)

    def watch_iterators(self, module: Any) -> None:
        """Has the iterators of loaders in a module tell of batches."""
        for name, cls in vars(module).copy().items():
            if name.endswith("DataLoaderIter") and "Base" not in name and cls.__module__ == module.__name__:
                wrap_method(cls, "_next_data", self.ask, self.receive)

    def watch_read_ahead(self, module: Any) -> None:
        """Has the loaders of accelerate tell when a loop begins, and comes back from its last batch."""
        wrap_method(module.DataLoaderStateMixin, "begin", lambda _: setattr(self.thread, "reads_ahead", True))
        wrap_method(module.DataLoaderStateMixin, "end", self._end)

    def ask(self, iterator: Any) -> Loop | None:
        """A loop asks for a batch. Returns None for a dataset that does so while it is read, and for a pipeline."""
        thread = self.thread
        if thread.waits is not None or thread.batch is not None or _is_of_pipeline(iterator, "_collate_fn"):
            return None
        if thread.computes is not None:
            thread.computes.computed()
        loop = self.loops.get(iterator)
        if loop is None or loop.is_over:
            loop = Loop(self.events, iterator, thread)
            self.loops[iterator] = loop
        thread.waits, thread.computes, loop.since = loop, None, _now()
        return loop

    def receive(self, loop: Loop | None, batch: Any) -> None:
        """The loop has its batch, or an error."""
        if loop is None:
            return
        thread = self.thread
        thread.waits = None
        if not isinstance(batch, BaseException):
            loop.receive()
            thread.computes = loop
            thread.received.add(loop)
            return
        loop.end()
        if loop.reads_ahead and isinstance(batch, StopIteration):
            thread.computes = loop
            thread.ended.append(loop)
        else:
            thread.received.discard(loop)

    def _step(self, *_: Any) -> None:
        thread = self.thread
        for loop in {*thread.received, thread.computes}:
            if loop is not None and loop.iterator() is not None:  # else the script has left the loop
                self.events.write(loop.name, steps=1)
        thread.received.clear()
        if thread.computes is not None and thread.computes.is_over:
            thread.computes.computed()

    def _end(self, *_: Any) -> None:
        thread = self.thread
        thread.reads_ahead = False
        if thread.ended:
            loop = thread.ended.pop()
            thread.received.discard(loop)
            if thread.computes is loop:
                loop.computed()
        if thread.computes is not None and thread.computes.is_over:
            thread.computes = None

    def _fetch(self, fetcher: Any, *_: Any) -> Batch | None:
        """Rows are fetched for a batch: of a loop, or in a worker; None for a dataset that reads a loader."""
        thread = self.thread
        if thread.batch is not None or _is_of_pipeline(fetcher, "collate_fn"):
            return None
        loop = thread.waits
        of, began = (self.events.process, _now()) if loop is None else (loop.name, loop.since)
        thread.batch = Batch(of, fetcher, began)
        return thread.batch

    def _fetched(self, batch: Batch | None, result: Any) -> None:
        if batch is None or self.thread.batch is not batch:  # a fork has begun meanwhile
            return
        self.thread.batch, now = None, _now()
        fetched = batch.fetched or now
        values = {"fetching": fetched - batch.began, "collating": now - fetched}
        if not isinstance(result, BaseException) and counting():
            values |= batch.values or _sizes_of_other(result)
        self.events.write(batch.of, **values)


def _sizes_of_other(batch: Any) -> dict[str, Any]:
    """The sizes of a batch that no collator of quadrat made."""
    from quadrat.integration.stream_position import PositionedBatch

    sizes = values_of(batch.batch if isinstance(batch, PositionedBatch) else batch)  # of a stream: beside its place
    return {**sizes, "others": 1} if "sized" in sizes else sizes


def _is_of_pipeline(holder: Any, name: str) -> bool:
    """True for what a pipeline of transformers reads its inputs with, by its function that collates."""
    return str(getattr(vars(holder).get(name), "__module__", "")).startswith(_PIPELINES)


class _CollateFn:
    """`collate_fn` of a fetcher: read between fetching and collating. A function there would be seen in tracebacks."""

    def __init__(self, timing: LoopTiming) -> None:
        self._timing = timing

    def __get__(self, fetcher: Any, cls: type | None = None) -> Any:
        if "collate_fn" not in getattr(fetcher, "__dict__", ()):
            raise AttributeError("collate_fn")
        batch = self._timing.thread.batch
        if batch is not None and batch.fetcher is fetcher:
            batch.fetched = _now()
        return fetcher.__dict__["collate_fn"]

    def __set__(self, fetcher: Any, function: Any) -> None:
        fetcher.__dict__["collate_fn"] = function
