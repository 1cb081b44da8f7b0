"""Where a Trainer is in a stream: the state of each worker process after the batches that were trained on.

A worker reads ahead, and sends its state with each batch. The main process keeps it until that has been trained on.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from inspect import getattr_static
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import skip_first_batches
from accelerate.data_loader import DataLoaderDispatcher, IterableDatasetShard
from torch.utils.data import DataLoader, IterableDataset

from quadrat.batching._epoch import differences
from quadrat.data._stream_shard import parts_of
from quadrat.integration.stream_position import Position, PositionedBatch, PositionedStream, PositioningCollator
from quadrat.integration.switch import Patch, Swap, Switch

logger = logging.getLogger("quadrat")
STORED = "SetEpochCallback: stream"  # in a checkpoint; under a callback's name, Trainer may make another callback of it


class _Passes(Iterator[Any]):
    """The iterator of a loader without the notes; with persistent workers, of all passes over it."""

    def __init__(self, make: Callable[[], Any], without_notes: Callable[[Callable[[], Any]], Iterator[Any]]) -> None:
        self._without_notes = without_notes
        self._noted: Any = None

        def begin() -> Any:
            self._noted = make()
            return self._noted

        self._batches = without_notes(begin)

    def _reset(self, loader: Any) -> None:
        def begin() -> Any:
            self._noted._reset(loader)
            return self._noted

        self._batches = self._without_notes(begin)

    def __next__(self) -> Any:
        return next(self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._noted, name)


class _Training:
    """The training in one epoch: its position, and the notes of batches that are read and not trained on yet."""

    # The phase of the training pass over the loader. "lost": it goes on from a place that is not known, because the
    # loader was read for something else meanwhile.
    phase: Literal["later", "next", "on", "lost", "over"] = "later"
    to_skip = 0  # batches that are read first, and not trained on
    resumed_at: int | None = None  # the batches trained on when the pass began, if it did not begin the epoch

    def __init__(self, position: Position, *, is_resumed: bool = False) -> None:
        self.position, self.is_resumed = position, is_resumed
        self.ahead: deque[tuple[int, str]] = deque()

    def batches(self, noted: Iterator[PositionedBatch], kept: int) -> Iterator[Any]:
        """The batches to train on: all but those to skip, of which the first `kept` come, too."""
        for number, (batch, worker, note) in enumerate(noted):
            if note is None:
                continue
            self.ahead.append((worker, note))
            if self.to_skip:
                self.to_skip -= 1
                self.move_on()
                if number >= kept:
                    continue
            yield batch
        if self.phase == "on":
            self.phase = "over"

    def move_on(self) -> None:
        if self.ahead:  # of processes that do not read, it is empty
            worker, note = self.ahead.popleft()
            workers = (*self.position.workers[:worker], note, *self.position.workers[worker + 1 :])
            self.position = self.position._replace(turn=(worker + 1) % len(workers), workers=workers)

    def lose_place(self) -> None:
        """The loader is read for something else. Raises RuntimeError before the first batch that is trained on."""
        if self.resumed_at == self.position.trained:
            raise RuntimeError(
                "the training loader was read before training, which would not go on where the checkpoint was written: "
                "read a loader of its own, trainer.get_train_dataloader()"
            )
        if self.phase == "on":
            logger.warning(
                "the training loader is read a second time in an epoch: checkpoints of this epoch do not say where the "
                "run is in its stream, and it cannot resume from them"
            )
        self.phase = "lost"


class Tracker:
    """Follows a Trainer through its loader of a stream, and has it begin where another run was."""

    def __init__(self, loader: Any, base: Any, args: Any) -> None:
        shard = base.dataset if isinstance(base.dataset, IterableDatasetShard) else None
        group = base.batch_size or 1
        if shard is not None:
            group = shard.batch_size * (1 if shard.split_batches else shard.num_processes)
        place = vars(base if shard is None else shard)  # a loader refuses another dataset when it has been made
        dataset, repeats = place["dataset"], shard is not None and not shard.drop_last
        place["dataset"] = self._stream = PositionedStream(dataset, group, repeats=repeats)
        base.collate_fn = PositioningCollator(base.collate_fn, self._stream)
        base._get_iterator = functools.partial(_Passes, base._get_iterator, self._batches)
        base._quadrat_tracker = self
        self._loader, self._base, self._args = loader, base, args
        self._is_alone = args.world_size == 1 or isinstance(loader, DataLoaderDispatcher)  # that reads
        is_dispatched = isinstance(loader, DataLoaderDispatcher) and args.world_size > 1
        self._per_step = args.world_size if is_dispatched and not loader.split_batches else 1  # batches of `base`
        self._repeats = is_dispatched and not loader._drop_last
        self._reader = {
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
    def follow(loader: Any, args: Any, state: Any) -> Tracker | None:
        """The tracker of a loader over a stream, at the start of a run; None if another callback of the run has it."""
        base = getattr(loader, "base_dataloader", loader)
        if not (isinstance(base, DataLoader) and isinstance(base.dataset, IterableDataset)):
            return None
        tracker = getattr(base, "_quadrat_tracker", None) or Tracker(loader, base, args)
        if tracker._state is state:
            return None
        tracker._args, tracker._state, tracker._training = args, state, tracker._start_of(0)
        return tracker

    def _start_of(self, epoch: int) -> _Training:
        return _Training(Position(epoch, 0, 0, (None,) * self._reader["num_workers"]))

    @property
    def epoch(self) -> int:
        """The epoch that is trained, or comes next."""
        return self._training.position.epoch

    def store(self, others: list[Any] | None = None) -> None:
        """Have a checkpoint that is written now store where training is."""
        missing = [None] * (0 if self._is_alone else self._args.world_size - 1)
        positions = others or [self._stored(), *missing]
        stored = {"step": self._state.global_step, "for": self._reader, "positions": positions}
        self._state.stateful_callbacks[STORED] = stored

    def _stored(self) -> dict[str, Any] | None:
        """The position in a checkpoint; None if it is not known."""
        training = self._training
        if training.phase == "lost":
            return None
        if (training.phase == "over" and not training.ahead) or training.position.trained == self._length:
            training = self._start_of(self.epoch + 1)
        return training.position._asdict()

    def resume(self, stored: dict[str, Any] | None) -> None:
        """Go on, in the next pass, where a checkpoint was written. Raises ValueError if its state does not fit."""
        state = self._state
        if stored is not None and stored["step"] != state.global_step:
            raise ValueError(
                f"the run went on without SetEpochCallback after step {stored['step']}, and its place in the stream is "
                "not known: resume from the checkpoint of that step"
            )
        if stored is None:
            epoch, anew = int(state.epoch), self._args.ignore_data_skip
            if self._length is None and epoch and not anew:
                raise ValueError(
                    f"the checkpoint was written without SetEpochCallback, in epoch {epoch} of a stream, "
                    "where Trainer cannot go on; with ignore_data_skip=True, it begins that epoch anew"
                )
            what = "the epoch of the stream begins anew" if anew else "batches are read and skipped"
            logger.warning("the checkpoint was written without SetEpochCallback: %s", what)
            self._training = self._start_of(epoch)
        else:
            kept = {**dict.fromkeys(self._reader), **stored["for"]}
            if differing := differences(self._reader, kept, "the checkpoint"):
                raise ValueError(
                    f"the checkpoint's state of the stream does not fit: {differing}. Go on with what it "
                    "was written with, or begin anew without resume_from_checkpoint"
                )
            if None in stored["positions"]:
                raise ValueError(
                    "the checkpoint does not say where the run was in its stream: the run ended while it saved it, or "
                    "had read the training loader a second time in this epoch. Resume from one before"
                )
            position = Position(**stored["positions"][0 if self._is_alone else self._args.process_index])
            self._require_steps_of(position)
            self._training = _Training(position, is_resumed=True)
        self._base._iterator = None  # workers that live on have begun elsewhere
        _have_trainers_ask()

    def _require_steps_of(self, position: Position) -> None:
        """Raises ValueError unless Trainer begins there, too, and workers know the epoch."""
        name, accumulated = type(self._stream.dataset).__name__, self._args.gradient_accumulation_steps
        if self._length is not None:
            epoch, steps = divmod(self._state.global_step, -(-self._length // accumulated))
            trained = 0 if self._args.ignore_data_skip else steps * accumulated
            if (epoch, trained) != (position.epoch, position.trained):
                raise ValueError(
                    f"Trainer would begin after batch {trained} of epoch {epoch}, by the length of {name}, but it "
                    f"was after batch {position.trained} of epoch {position.epoch}: its len must be right, "
                    "the batch size and gradient accumulation as before, and ignore_data_skip False"
                )
        # A stream that holds its epoch itself keeps, in workers that live on, the one in which they began.
        is_copied = self._base.persistent_workers and type(getattr_static(self._stream.dataset, "epoch", None)) is int
        if is_copied and position.epoch and None in position.workers:
            raise ValueError(
                f"the epoch of {name} is not known in workers that live on, at the start of epoch {position.epoch}: "
                "resume from a checkpoint within an epoch, and set dataloader_persistent_workers=False for new runs"
            )

    def skip(self, count: int) -> None:
        """Have the next pass begin after so many batches, which are read unless it begins there anyway."""
        if not self._training.is_resumed:
            self._training.position = self._training.position._replace(trained=count)
            self._training.to_skip = count * self._per_step

    def begin(self, epoch: int) -> None:
        """An epoch of Trainer begins."""
        if not self._training.is_resumed or self._training.phase != "later":
            self._training = self._start_of(epoch)
        self._training.phase = "next"

    def step(self) -> None:
        """A batch has been trained on."""
        training = self._training
        training.position = training.position._replace(trained=training.position.trained + 1)
        for _ in range(self._per_step):
            training.move_on()

    def step_ends(self) -> None:
        """Correct the epoch in Trainer's state, which is wrong after a stream resumed."""
        if self._length is None:
            count = self._state.max_steps * self._args.gradient_accumulation_steps
            self._state.epoch = self.epoch + self._training.position.trained / count
        self.store()

    def end(self) -> None:
        """An epoch of Trainer ends, with or without the rest of the stream."""
        self._training.phase = "over"
        self._training.ahead.clear()
        self.store()

    def gather(self) -> None:
        """Add the positions of the other processes to the checkpoint that this one has written."""
        if self._is_alone:
            return
        others: list[Any] = [None] * self._args.world_size
        torch.distributed.all_gather_object(others, self._stored())
        path = Path(self._args.output_dir, f"checkpoint-{self._state.global_step}", "trainer_state.json")
        if self._args.should_save and path.is_file():
            self.store(others)
            self._state.save_to_json(str(path.with_suffix(".new")))
            os.replace(path.with_suffix(".new"), path)

    def _batches(self, begin: Callable[[], Iterator[PositionedBatch]]) -> Iterator[Any]:
        """The batches of a pass over the loader."""
        training, self._stream.position = self._training, None
        if training.phase != "next":
            if training.phase in ("on", "lost"):
                training.lose_place()
            return (positioned.batch for positioned in begin())  # for something else than training
        training.phase, position = "on", training.position
        goes_on = any(position.workers)
        training.resumed_at = position.trained if goes_on or training.to_skip else None
        if hasattr(self._base.dataset, "set_epoch"):  # accelerate counts the epochs of this process
            self._base.dataset.set_epoch(position.epoch)
        first: list[Any] = []
        if self._repeats:  # likewise, accelerate must have seen the first batch
            self._loader.skip_batches = int(training.resumed_at is not None)
            if goes_on and self._args.process_index == 0:
                first = [positioned.batch for positioned in itertools.islice(begin(), self._per_step)]
        self._stream.position = position
        return itertools.chain(first, training.batches(begin(), self._per_step * self._repeats))


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
