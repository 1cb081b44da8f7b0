"""The time that a loop waits for batches, and the time that its model computes, as `quadrat run` counts them.

A clock runs in `_next_data` of a loader's iterator, where a loop waits, and in `fetch`, which fetches rows and collates
them. Between two batches, the time is the model's. A pass over a loader in which an optimizer steps is training.
"""

import functools
import os
import sys
import threading
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from quadrat.cli.promises import EVALUATION, TRAINING, option_for

_MOST_PASSES = 1_000  # with more, those that are over are added up
_PIPELINES = "transformers.pipelines."

_now = time.perf_counter

Counts = dict[str, Any]  # counters that add up: "sums", of seconds and tokens by name, and others by length or size


def new_counts() -> Counts:
    """Counters, each of which is made when it is first used."""
    return defaultdict(Counter)


def add_counts(counts: Counts, others: Counts) -> None:
    """Adds numbers to counters, of the same names."""
    for name, numbers in others.items():
        counts[name].update(numbers)


class _Pass:
    """A pass over a loader: its seconds and its batches."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = weakref.ref(iterator)
        self.trains = False
        self.option = option_for(iterator)
        self.workers = [one.pid for one in getattr(iterator, "_workers", ())]
        self.counts = new_counts()
        self.sums = self.counts["sums"]
        self.counts["num_workers"][len(self.workers)] = 1

    def group(self) -> str:
        """The kind of its loop, and the option that changes its batches."""
        return f"{TRAINING if self.trains else EVALUATION} {self.option}"


class _Own(threading.local):
    """The state of a thread: it waits for a batch, makes one, or computes one."""

    computed = 0  # the tokens of its last batch
    counts: Counts  # that they were added to
    inside = False  # whether a collator, or what calls tokenizers, makes a batch: what tokenizers do does not count
    computes = False  # whether a loop of sentence-transformers computes
    is_counted = False  # whether a collator counted this batch
    makes: _Pass | None = None  # that the thread waits for
    has: _Pass | None = None  # whose batch the thread computes
    since = 0.0  # the one or the other
    is_last = False  # whether the loader has no other batch
    fetcher: Any = None  # that makes a batch
    began = fetched = 0.0

    def __init__(self) -> None:
        self.met: set[_Pass] = set()  # that gave a batch since the last step


class Waits:
    """The passes over loaders in this process. A fork calls `__init__`: it begins anew."""

    def __init__(self) -> None:
        self.own = _Own()
        self.lock = threading.Lock()
        self.passes: list[_Pass] = []
        self.groups: dict[str, Counts] = defaultdict(new_counts)  # of passes that are over
        self.workers: dict[int, str] = {}  # likewise: the group that each worker made batches for
        self.made = new_counts()  # in a worker; and of collators that no loader calls

    def start(self, iterator: Any) -> _Pass | None:
        """A loop asks for a batch. Returns None for a dataset that does so while it is read, and for a pipeline."""
        own = self.own
        if own.makes is not None or own.fetcher is not None or is_of_pipeline(iterator, "_collate_fn"):
            return None
        now = _now()
        if own.has is not None and not own.is_last:
            own.has.sums["model"] += now - own.since
        found: _Pass | None = getattr(iterator, "_quadrat_pass", None)
        if found is None:
            found = iterator._quadrat_pass = _Pass(iterator)
            self.passes.append(found)
            if len(self.passes) > _MOST_PASSES:
                self.passes = [one for one in self.passes if not self._is_over(one)]
        own.makes, own.has, own.is_last, own.since = found, None, False, now
        return found

    def stop(self, found: _Pass | None, error: BaseException | None = None) -> None:
        """The loop has its batch, or an error."""
        if found is None:
            return
        own, now = self.own, _now()
        found.sums["waited"] += now - own.since
        if found.workers:
            found.sums["for_workers"] += now - own.since
        own.makes, own.since = None, now
        if error is None:
            found.sums["batches"] += 1
            own.has = found
            own.met.add(found)
        elif isinstance(error, StopIteration) and _is_read_ahead():
            own.has, own.is_last = found, True
        else:
            own.met.discard(found)

    def computed_last(self, *_: Any) -> None:
        """The model has computed the last batch of a loader that reads one ahead."""
        own = self.own
        if own.has is not None and own.is_last:
            now = _now()
            own.has.sums["model"] += now - own.since
            own.since = now

    def stepped(self, *_: Any) -> None:
        """An optimizer has made a step."""
        for one in self.own.met:
            one.trains |= one.iterator() is not None  # else the loop has left it
        self.own.met.clear()
        self.computed_last()

    def start_fetching(self, fetcher: Any) -> bool:
        """Rows are fetched for a batch. Returns whether this is for a loop, not for a dataset that is read."""
        own = self.own
        if own.fetcher is not None:
            return False
        own.fetcher, own.fetched, own.is_counted = fetcher, 0.0, False
        own.began = _now() if own.makes is None else own.since  # with the choice of rows
        return True

    def stop_fetching(self, is_outer: bool, error: BaseException | None = None) -> None:
        """The batch is made, or fetching or collating failed."""
        own = self.own
        if is_outer and own.fetcher is not None:  # else a fork has begun meanwhile
            now = _now()
            sums = self.counts()["sums"]
            sums["fetching"] += (own.fetched or now) - own.began
            sums["collating"] += now - (own.fetched or now)
            own.fetcher = None

    def counts(self) -> Counts:
        """The counters of the pass that this thread makes a batch for; in a worker, nobody waits."""
        return self.made if self.own.makes is None else self.own.makes.counts

    def _is_over(self, one: _Pass) -> bool:
        if one.iterator() is not None or one is self.own.has:
            return False
        _add(one, self.groups, self.workers)
        return True

    def as_dict(self) -> dict[str, Any]:
        """The numbers of each group of passes, and of no pass; and the group that each worker made batches for."""
        groups: dict[str, Counts] = defaultdict(new_counts)
        with self.lock:
            workers = self.workers.copy()
            for group, counts in self.groups.items():
                add_counts(groups[group], counts)
            for one in self.passes:
                _add(one, groups, workers)
            made = {name: dict(numbers) for name, numbers in self.made.items()}
        return {"groups": groups, "group_of_workers": workers, "made": made, "pid": os.getpid()}


def _add(one: _Pass, groups: dict[str, Counts], workers: dict[int, str]) -> None:
    add_counts(groups[one.group()], {**one.counts, "passes": {"": one.sums["batches"] > 0}})
    workers.update(dict.fromkeys(one.workers, one.group()))


def is_of_pipeline(fetcher: Any, name: str = "collate_fn") -> bool:
    """True for what a pipeline of transformers reads its inputs with, by its function that collates."""
    return str(getattr(vars(fetcher).get(name), "__module__", "")).startswith(_PIPELINES)


def _is_read_ahead() -> bool:
    """True where a loader of accelerate asks, which has not given the last batch yet."""
    frame: Any = sys._getframe(3)  # that of `__next__`
    names = (getattr(frame, "f_back", None), getattr(getattr(frame, "f_back", None), "f_back", None))
    return any(one is not None and one.f_globals.get("__name__") == "accelerate.data_loader" for one in names)


class _CollateFn:
    """`collate_fn` of a fetcher: read between fetching and collating. A function there would be seen in tracebacks."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits

    def __get__(self, fetcher: Any, cls: type | None = None) -> Any:
        if "collate_fn" not in getattr(fetcher, "__dict__", ()):
            raise AttributeError("collate_fn")
        own = self._waits.own
        if own.fetcher is fetcher:
            own.fetched = _now()
        return fetcher.__dict__["collate_fn"]

    def __set__(self, fetcher: Any, function: Any) -> None:
        fetcher.__dict__["collate_fn"] = function


def watch_loaders(waits: Waits, made: Callable[[Any, Any], None]) -> None:
    """Has the loaders of torch tell of batches, and `made` of fetchers and the batches that they made."""
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.utils.data import dataloader
    from torch.utils.data._utils import fetch

    register_optimizer_step_post_hook(waits.stepped)
    fetch._BaseDatasetFetcher.collate_fn = _CollateFn(waits)
    for cls in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        cls.fetch = _told(cls.fetch, waits.start_fetching, waits.stop_fetching, made)  # type: ignore[method-assign]
    watch_iterators(dataloader, waits)


def watch_iterators(module: Any, waits: Waits) -> None:
    """Has the iterators of loaders in a module tell of batches."""
    for name, cls in vars(module).copy().items():
        if name.endswith("DataLoaderIter") and "Base" not in name and cls.__module__ == module.__name__:
            cls._next_data = _told(cls._next_data, waits.start, waits.stop)


def _told(original: Any, start: Any, stop: Any, made: Any = None) -> Any:
    """A method around which `start` and `stop` are told of batches, and `made` of those that `start` counts."""

    @functools.wraps(original)
    def telling(self: Any, *given: Any) -> Any:
        counted = start(self)
        try:
            batch = original(self, *given)
        except BaseException as error:
            stop(counted, error)
            if error.__traceback__ is not None:  # tracebacks are those of without: this frame is left out
                error.__traceback__ = error.__traceback__.tb_next
            raise
        stop(counted)
        if counted and made is not None:
            made(self, batch)
        return batch

    return telling


def watch_read_ahead(module: Any, waits: Waits) -> None:
    """Has the loaders of accelerate tell when a loop comes back from its last batch."""
    end = module.DataLoaderStateMixin.end

    @functools.wraps(end)
    def ended(self: Any) -> Any:
        waits.computed_last()
        waits.own.has = None
        return end(self)

    module.DataLoaderStateMixin.end = ended
