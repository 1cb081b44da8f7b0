"""The time that a loop waits for batches, and the time that its model computes, as `quadrat run` counts them.

A clock runs in `_next_data` of a loader's iterator, where a loop waits, and in `fetch`, which fetches rows and collates
them. Between two batches, the time is the model's. A pass over a loader in which an optimizer steps is training.
"""

from __future__ import annotations

import copy
import functools
import math
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

TRAINING, EVALUATION = "training", "evaluation"
_NAMES = (
    *("batches", "waited", "fetching", "collating", "for_workers", "model"),
    *("processes", "num_workers", "fetching_in_workers", "collating_in_workers"),
)
# A saving below this share of a loop is not worth a change.
_LITTLE = 0.05
_SHORT = 1.0  # seconds of a loop that say nothing of a longer one
_MOST_PASSES = 1_000  # with more, those that are over are added up

_now = time.perf_counter


class _Pass:
    """The seconds of a pass over a loader."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = weakref.ref(iterator)
        self.trains = False
        self.seconds: Any = Counter()
        self.workers = [one.pid for one in getattr(iterator, "_workers", ())]


class _Own(threading.local):
    """The state of a thread: it waits for a batch, makes one, or computes one."""

    computed = 0  # the tokens of its last batch
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
        self.passes: list[_Pass] = []
        self.loops: dict[str, Any] = {}  # of passes that are over: the seconds by kind of loop
        self.kinds: dict[int, str] = {}  # likewise: of workers, the kind of loop that they made batches for
        self.made: Any = Counter()  # in a worker

    def start(self, iterator: Any) -> _Pass | None:
        """A loop asks for a batch. Returns None for a dataset that does so while it is read."""
        own = self.own
        if own.makes is not None or own.fetcher is not None:
            return None
        now = _now()
        if own.has is not None and not own.is_last:
            own.has.seconds["model"] += now - own.since
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
        found.seconds["waited"] += now - own.since
        if found.workers:
            found.seconds["for_workers"] += now - own.since
        own.makes, own.since = None, now
        if error is None:
            found.seconds["batches"] += 1
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
            own.has.seconds["model"] += now - own.since
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
            seconds = self.made if own.makes is None else own.makes.seconds  # in a worker, nobody waits
            seconds["fetching"] += (own.fetched or now) - own.began
            seconds["collating"] += now - (own.fetched or now)
            own.fetcher = None

    def _is_over(self, one: _Pass) -> bool:
        if one.iterator() is not None or one is self.own.has:
            return False
        _add(one, self.loops, self.kinds)
        return True

    def as_dict(self) -> dict[str, Any]:
        """The seconds by kind of loop, the kind that each worker made batches for; and in a worker its seconds."""
        loops, kinds = copy.deepcopy(self.loops), self.kinds.copy()
        for one in self.passes:
            _add(one, loops, kinds)
        return {"loops": loops, "kinds": kinds, "made": dict(self.made), "pid": os.getpid()}


def _add(one: _Pass, loops: dict[str, Any], kinds: dict[int, str]) -> None:
    kind = TRAINING if one.trains else EVALUATION
    loop = loops.setdefault(kind, Counter())
    loop.update(one.seconds)
    loop["num_workers"] = max(loop["num_workers"], len(one.workers))
    kinds.update(dict.fromkeys(one.workers, kind))


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


def merged_loops(processes: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The seconds of the loops of all processes by kind, with those of the workers that made their batches."""
    found: dict[str, Any] = {}
    kinds, made = {}, {}
    for one in processes:
        for kind, seconds in one.pop("loops", {}).items():
            loop = found.setdefault(kind, Counter())
            most = max(loop["num_workers"], seconds.pop("num_workers"))
            loop.update(seconds)
            loop["num_workers"] = most
            loop["processes"] += 1
        kinds.update(one.pop("kinds", {}))
        made[str(one.pop("pid", None))] = one.pop("made", {})
    for pid, kind in kinds.items():
        found[kind].update({f"{name}_in_workers": seconds for name, seconds in made.get(pid, {}).items()})
    return {
        kind: {**{name: loop[name] for name in _NAMES}, "share": loop["waited"] / max(_whole(loop), 1e-9)}
        for kind, loop in sorted(found.items(), reverse=True)  # training first
        if loop["batches"]
    }


def gains(loop: dict[str, float], fewer_tokens: float) -> dict[str, float]:
    """The seconds that fewer tokens and another number of workers are expected to save, and that number."""
    model, workers = loop["model"], int(loop["num_workers"])
    name = "_in_workers" * (workers > 0)  # where batches are made
    making = loop[f"fetching{name}"] + loop[f"collating{name}"]
    enough = max(1, math.ceil(making / max(model, 1e-9)))
    others = {number: max(model, making / number) for number in (min(enough, _most_workers()),) if number > workers}
    others |= {0: model + making} if workers else {}
    best = min(others, key=lambda number: others[number], default=workers)
    saved = max(0.0, _whole(loop) - others.get(best, math.inf))
    return {"fewer_tokens": fewer_tokens * model, "num_workers": best if saved else workers, "workers": saved}


def _most_workers() -> int:
    """As many as there are processors for them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _whole(loop: dict[str, float]) -> float:
    return loop["waited"] + loop["model"]


def loop_sentences(loops: dict[str, Any], remedies: dict[str, str]) -> Iterator[str]:
    """The report on loops, with what makes their batches compute fewer tokens."""
    for kind, loop in loops.items():
        workers, gain, whole = loop["num_workers"], loop["gains"], _whole(loop)
        name = "_in_workers" * (workers > 0)
        fetching, collating = loop[f"fetching{name}"], loop[f"collating{name}"]
        yield (
            f"{kind} waited {loop['waited']:.3g} s for {loop['batches']:,} batches, {loop['share']:.1%} of its loop, "
            f"{loop['share_of_run']:.1%} of the run; fetching rows took {fetching:.3g} s, collating {collating:.3g} s"
            f"{' in its workers' * (workers > 0)}, and the model {loop['model']:.3g} s"
        )
        if whole < _SHORT:
            continue
        helps = []
        if gain["fewer_tokens"] > _LITTLE * whole:
            helps.append(f"{remedies[kind]} saves about {gain['fewer_tokens']:.3g} s")
        if gain["workers"] > _LITTLE * whole:
            helps.append(f"num_workers={gain['num_workers']} instead of {workers} up to {gain['workers']:.3g} s")
        if helps:
            yield f"of these {whole:.3g} s of {kind}, {' and '.join(helps)}"
        elif loop["share"] > _LITTLE:
            slow = "fetching rows" if fetching > collating else "collating"
            yield f"{kind} is bound by {slow}: only doing that faster helps, by {loop['share']:.1%} at most"
        else:
            most = (gain["fewer_tokens"] + gain["workers"]) / whole
            yield f"{kind} is bound by the model: other batches or workers save {most:.1%} at most"
