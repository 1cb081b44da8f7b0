"""Where a Trainer is in a stream: the state of each worker process after the batches that were trained on.

A worker reads ahead, and sends its state with each batch. The main process keeps it until that has been trained on.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from inspect import getattr_static
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import skip_first_batches
from accelerate.data_loader import DataLoaderDispatcher, IterableDatasetShard
from torch.utils.data import DataLoader, IterableDataset

from quadrat.data._share import here, keeps_its_place, own_examples, parts_of
from quadrat.integration.switch import Patch, Swap, Switch
from quadrat.support.around import Around

logger = logging.getLogger("quadrat")
STORED = "SetEpochCallback: stream"  # in a checkpoint; under a callback's name, Trainer may make another callback of it


class NotedBatch(NamedTuple):
    """A batch as a worker sends it."""

    noted: Any
    worker: int
    note: str | None  # where the worker is after the batch; None for one that is not to be trained on


class _NotedStream(IterableDataset[Any]):
    """A stream that says where it is, and goes on there. Each worker process has a copy."""

    position: dict[str, Any] | None = None  # that the next pass begins at, of all workers

    def __init__(self, dataset: Any, group: int, *, repeats: bool) -> None:
        if hasattr(dataset, "_ex_iterable"):  # of `datasets`: nobody else sees where it is, or begins there
            given, dataset = dataset, object.__new__(type(dataset))  # its copies have the same `__dict__`
            vars(dataset).update(vars(given), _ex_iterable=own_examples(given._ex_iterable))
        self.dataset = dataset
        self._group, self._repeats = group, repeats  # the items of a batch; whether the first ones end the pass, too
        has_state = hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")
        self.has_state = has_state and keeps_its_place(getattr(dataset, "_ex_iterable", None))
        self.leading = self._items = 0
        self._epoch, self._is_loaded = None, False

    def __getattr__(self, name: str) -> Any:
        if name == "dataset" or name.startswith("__"):  # while it is pickled
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        worker, position, self.position = here(0, 1).worker, self.position, None
        self.leading = self._items = 0
        if self._is_loaded and hasattr(self.dataset, "_starting_state_dict"):
            self.dataset._starting_state_dict = None  # `datasets` would begin there whenever the epoch is the same
        # Now: an evaluation may set another one. And not all datasets tell running workers of a new one.
        self._epoch = getattr(self.dataset, "epoch", None)
        if position is None or position["workers"][worker] is None:
            return iter(self.dataset) if self.has_state else self._counted(self.dataset)
        at = json.loads(position["workers"][worker])
        if at["epoch"] is not None and hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(at["epoch"])  # `datasets` ignores the state of another one
            self._epoch = at["epoch"]
        # A loader begins with worker 0: what workers before the next one give first takes their turn and is dropped.
        # accelerate ends a pass with its first items, which it must have seen.
        self.leading = self._repeats + (worker < position["turn"])
        first = list(itertools.islice(self.dataset, self._group)) if self._repeats else [None] * self._group
        if self.has_state:
            self._is_loaded = True
            self.dataset.load_state_dict(at["state"])
            return itertools.chain(first * self.leading, self.dataset)
        self._items = at["items"]
        return itertools.chain(first * self.leading, self._counted(itertools.islice(self.dataset, self._items, None)))

    def _counted(self, rows: Any) -> Iterator[Any]:
        for row in rows:
            self._items += 1
            yield row

    def note(self) -> str:
        """Where the stream is. Raises TypeError for a state that JSON does not keep."""
        state = self.dataset.state_dict() if self.has_state else None
        try:
            note = json.dumps({"items": self._items, "epoch": self._epoch, "state": state})
            is_kept = json.loads(note)["state"] == state
        except (TypeError, ValueError):
            is_kept = False
        if not is_kept:
            raise TypeError(
                f"the state_dict of {type(self.dataset).__name__} cannot be stored in a checkpoint: it may have lists, "
                "dicts with names, numbers and texts alone"
            )
        return note


class _Noting(Around):
    """A collator that adds to each batch where the stream is after it."""

    def __init__(self, collator: Any, stream: _NotedStream) -> None:
        self.collator, self._stream = collator, stream

    def __call__(self, features: Any) -> NotedBatch:
        stream, worker = self._stream, here(0, 1).worker
        if stream.leading:
            stream.leading -= 1
            return NotedBatch(None, worker, None)
        return NotedBatch(self.collator(features), worker, stream.note())


class Tracker:
    """Follows a Trainer through its loader of a stream, and has it begin where another run was."""

    def __init__(self, loader: Any, base: Any, args: Any) -> None:
        shard = base.dataset if isinstance(base.dataset, IterableDatasetShard) else None
        group = base.batch_size or 1
        if shard is not None:
            group = shard.batch_size * (1 if shard.split_batches else shard.num_processes)
        place = vars(base if shard is None else shard)  # a loader refuses another dataset when it has been made
        dataset, repeats = place["dataset"], shard is not None and not shard.drop_last
        place["dataset"] = self._stream = _NotedStream(dataset, group, repeats=repeats)
        base.collate_fn = _Noting(base.collate_fn, self._stream)
        base._quadrat_tracker = self
        cls = type(base)
        base.__class__ = type(
            cls.__name__, (cls,), {"__iter__": lambda base: self._batches(lambda: cls.__iter__(base))}
        )
        self._loader, self._base, self._args = loader, base, args
        self._is_alone = args.world_size == 1 or isinstance(loader, DataLoaderDispatcher)  # that reads
        is_dispatched = isinstance(loader, DataLoaderDispatcher) and args.world_size > 1
        self._per = args.world_size if is_dispatched and not loader.split_batches else 1  # batches of `base` in one
        self._repeats = is_dispatched and not loader._drop_last
        self._is_for = {
            "dataset": _described(dataset),
            "world_size": args.world_size,
            "num_workers": max(base.num_workers, 1),
            "dispatch_batches": self._is_alone,
            "has_state": self._stream.has_state,
        }
        try:
            self._length: int | None = len(loader)
        except TypeError:
            self._length = None
        self._state: Any = None

    @staticmethod
    def of(loader: Any, args: Any, state: Any) -> Tracker | None:
        """The tracker of a loader over a stream, at its start; None if another callback of this run has it."""
        base = getattr(loader, "base_dataloader", loader)
        if not (isinstance(base, DataLoader) and isinstance(base.dataset, IterableDataset)):
            return None
        tracker = getattr(base, "_quadrat_tracker", None) or Tracker(loader, base, args)
        if tracker._state is state:
            return None
        tracker._args, tracker._state = args, state
        tracker._goes_on, tracker._reads = False, True
        tracker._go_to({"epoch": 0})
        return tracker

    def _go_to(self, position: dict[str, Any]) -> None:
        self.epoch, self._trained, self._turn = position["epoch"], position.get("trained", 0), position.get("turn", 0)
        self._workers = list(position.get("workers") or [None] * self._is_for["num_workers"])
        self._ahead: deque[tuple[int, Any]] = deque()  # of batches that are not trained on yet
        self._to_skip, self._is_over, self._is_new, self._is_read = 0, False, False, False
        self._began: int | None = None  # the batches trained on when this pass went on; None if it begins an epoch
        self._is_lost = False  # whether the loader was read for something else meanwhile

    def store(self, others: list[Any] | None = None) -> None:
        """Have a checkpoint that is written now store where training is."""
        missing = [None] * (0 if self._is_alone else self._args.world_size - 1)
        positions = others or [self.position(), *missing]
        stored = {"step": self._state.global_step, "for": self._is_for, "positions": positions}
        self._state.stateful_callbacks[STORED] = stored

    def position(self) -> dict[str, Any] | None:
        """All that the next batch depends on; None if it is not known."""
        if self._is_lost:
            return None
        if (self._is_over and not self._ahead) or self._trained == self._length:
            return {"epoch": self.epoch + 1, "trained": 0, "turn": 0, "workers": [None] * len(self._workers)}
        return {"epoch": self.epoch, "trained": self._trained, "turn": self._turn, "workers": [*self._workers]}

    def resume(self, stored: dict[str, Any] | None) -> None:
        """Go on, in the next pass, where a checkpoint was written. Raises ValueError if its state does not fit."""
        state = self._state
        if stored is not None and stored["step"] != state.global_step:
            raise ValueError(
                f"the run went on without SetEpochCallback after step {stored['step']}, and its place in the stream is "
                "not known: resume from the checkpoint of that step"
            )
        if stored is None:
            position, anew = {"epoch": int(state.epoch)}, self._args.ignore_data_skip
            if self._length is None and position["epoch"] and not anew:
                raise ValueError(
                    f"the checkpoint was written without SetEpochCallback, in epoch {position['epoch']} of a stream, "
                    "where Trainer cannot go on; with ignore_data_skip=True, it begins that epoch anew"
                )
            what = "the epoch of the stream begins anew" if anew else "batches are read and skipped"
            logger.warning("the checkpoint was written without SetEpochCallback: %s", what)
        else:
            differing = [
                f"{name} is {value!r} here and {stored['for'].get(name)!r} in the checkpoint"
                for name, value in self._is_for.items()
                if stored["for"].get(name) != value
            ]
            if differing:
                raise ValueError(
                    f"the checkpoint's state of the stream does not fit: {'; '.join(differing)}. Go on with what it "
                    "was written with, or begin anew without resume_from_checkpoint"
                )
            if None in stored["positions"]:
                raise ValueError(
                    "the checkpoint does not say where the run was in its stream: the run ended while it saved it, or "
                    "had read the training loader a second time in this epoch. Resume from one before"
                )
            position = stored["positions"][0 if self._is_alone else self._args.process_index]
            self._require_steps_of(position)
        self._go_to(position)
        self._goes_on, self._reads = True, stored is None
        self._base._iterator = None  # workers that live on have begun elsewhere
        _have_trainers_ask()

    def _require_steps_of(self, position: dict[str, Any]) -> None:
        """Raises ValueError unless Trainer begins there, too, and workers know the epoch."""
        name, accumulated = type(self._stream.dataset).__name__, self._args.gradient_accumulation_steps
        if self._length is not None:
            epoch, steps = divmod(self._state.global_step, -(-self._length // accumulated))
            trained = 0 if self._args.ignore_data_skip else steps * accumulated
            if (epoch, trained) != (position["epoch"], position.get("trained", 0)):
                raise ValueError(
                    f"Trainer would begin after batch {trained} of epoch {epoch}, by the length of {name}, but it "
                    f"was after batch {position['trained']} of epoch {position['epoch']}: its len must be right, "
                    "the batch size and gradient accumulation as before, and ignore_data_skip False"
                )
        # A stream that holds its epoch itself keeps, in workers that live on, the one in which they began.
        is_copied = self._base.persistent_workers and type(getattr_static(self._stream.dataset, "epoch", None)) is int
        if is_copied and position["epoch"] and None in position["workers"]:
            raise ValueError(
                f"the epoch of {name} is not known in workers that live on, at the start of epoch {position['epoch']}: "
                "resume from a checkpoint within an epoch, and set dataloader_persistent_workers=False for new runs"
            )

    def skip(self, count: int) -> None:
        """Have the next pass begin after so many batches, which are read unless it begins there anyway."""
        if self._reads:
            self._trained, self._to_skip = count, count * self._per

    def begin(self, epoch: int) -> None:
        """An epoch of Trainer begins."""
        if not self._goes_on:
            self._go_to({"epoch": epoch})
        self._goes_on, self._is_new = False, True

    def step(self) -> None:
        """A batch has been trained on."""
        self._trained += 1
        for _ in range(self._per):
            self._pass_on()

    def step_ends(self) -> None:
        """Correct the epoch in Trainer's state, which is wrong after a stream resumed."""
        if self._length is None:
            count = self._state.max_steps * self._args.gradient_accumulation_steps
            self._state.epoch = self.epoch + self._trained / count
        self.store()

    def end(self) -> None:
        """An epoch of Trainer ends, with or without the rest of the stream."""
        self._is_over, self._is_read, self._is_lost = True, False, False
        self._ahead.clear()
        self.store()

    def gather(self) -> None:
        """Add the positions of the other processes to the checkpoint that this one has written."""
        if self._is_alone:
            return
        others: list[Any] = [None] * self._args.world_size
        torch.distributed.all_gather_object(others, self.position())
        path = Path(self._args.output_dir, f"checkpoint-{self._state.global_step}", "trainer_state.json")
        if self._args.should_save and path.is_file():
            self.store(others)
            self._state.save_to_json(str(path.with_suffix(".new")))
            os.replace(path.with_suffix(".new"), path)

    def _batches(self, begin: Callable[[], Iterator[NotedBatch]]) -> Iterator[Any]:
        """The batches of a pass over the loader."""
        self._stream.position = None
        if not self._is_new:
            if self._is_read:
                self._lose_place()
            return (batch for batch, *_ in begin())  # for something else than training
        self._is_new, self._is_read = False, True
        if hasattr(self._base.dataset, "set_epoch"):  # accelerate counts the epochs of this process
            self._base.dataset.set_epoch(self.epoch)
        first: list[Any] = []
        self._began = self._trained if any(self._workers) or self._to_skip else None
        if self._repeats:  # likewise, accelerate must have seen the first batch
            goes_on = any(self._workers)
            self._loader.skip_batches = int(goes_on or self._to_skip > 0)
            if goes_on and self._args.process_index == 0:
                first = [batch for batch, *_ in itertools.islice(begin(), self._per)]
                self._base._iterator = None  # workers that live on
        self._stream.position = self.position()
        return itertools.chain(first, self._taken_apart(begin(), self._per * self._repeats))

    def _lose_place(self) -> None:
        if self._began == self._trained:
            raise RuntimeError(
                "the training loader was read before training, which would not go on where the checkpoint was written: "
                "read a loader of its own, trainer.get_train_dataloader()"
            )
        if not self._is_lost:
            logger.warning(
                "the training loader is read a second time in an epoch: checkpoints of this epoch do not say where the "
                "run is in its stream, and it cannot resume from them"
            )
        self._is_lost = True

    def _taken_apart(self, passing: Iterator[NotedBatch], kept: int) -> Iterator[Any]:
        for number, (batch, worker, note) in enumerate(passing):
            if note is None:
                continue
            self._ahead.append((worker, note))
            if self._to_skip:
                self._to_skip -= 1
                self._pass_on()
                if number >= kept:
                    continue
            yield batch
        self._is_over, self._is_read = True, False

    def _pass_on(self) -> None:
        if self._ahead:  # of processes that do not read, it is empty
            worker, self._workers[worker] = self._ahead.popleft()
            self._turn = (worker + 1) % len(self._workers)


def _skip_first_batches(dataloader: Any, num_batches: int = 0) -> Any:
    tracker = getattr(dataloader, "_quadrat_tracker", None)
    if tracker is None:
        return skip_first_batches(dataloader, num_batches)
    tracker.skip(num_batches)
    return dataloader


@functools.cache
def _have_trainers_ask() -> None:
    """Has Trainers ask the tracker of a loader that has one to skip batches, from now on."""
    swaps = [Swap(skip_first_batches, _skip_first_batches)]
    Patch("SetEpochCallback", Switch(lambda: swaps, "transformers", "trl", "sentence_transformers", "__main__"))


def _described(dataset: Any) -> str:
    """A name, which tells datasets of `datasets` apart by how they are made, and by their seeds."""
    examples, name = getattr(dataset, "_ex_iterable", None), type(dataset).__name__
    return name if examples is None else f"{name} {zlib.crc32(repr(_made_of(examples)).encode()):08x}"


def _made_of(examples: Any) -> Any:
    generator = getattr(examples, "generator", None)
    seed = None if generator is None else generator.bit_generator.state
    return type(examples).__name__, seed, [*map(_made_of, parts_of(examples))]
