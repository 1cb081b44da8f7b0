"""A stream and a collator in worker processes: each batch comes with a note of where the stream is after it."""

import itertools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset

from quadrat.data._stream_shard import begins_at, here, keeps_its_place, own_examples
from quadrat.support.wrappers import CollatorWrapper


class PositionedBatch(NamedTuple):
    """A batch as a worker sends it."""

    batch: Any
    worker: int
    note: str | None  # where the worker is after the batch; None for one that is not to be trained on


class Position(NamedTuple):
    """All that the next batch depends on."""

    epoch: int
    trained: int  # batches of the epoch
    turn: int  # the worker that gives the next one
    workers: tuple[str | None, ...]  # the note of the last batch of each; None: it begins the epoch


class PositionedStream(IterableDataset[Any]):
    """A stream that says where it is, and goes on there. Each worker process has a copy."""

    position: Position | None = None  # where the next pass begins

    def __init__(self, dataset: Any, group: int, *, repeats: bool) -> None:
        if hasattr(dataset, "_ex_iterable"):  # of `datasets`: nobody else sees where it is, or begins there
            original, dataset = dataset, object.__new__(type(dataset))  # its copies have the same `__dict__`
            vars(dataset).update(vars(original), _ex_iterable=own_examples(original._ex_iterable))
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
        if position is None or (note := position.workers[worker]) is None:
            return self._counted(self.dataset)
        noted = json.loads(note)
        if noted["epoch"] is not None and hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(noted["epoch"])  # `datasets` ignores the state of another one
            self._epoch = noted["epoch"]
        # A loader begins with worker 0: what workers before the next one give first takes their turn and is dropped.
        # accelerate ends a pass with its first items, which it must have seen.
        self.leading = self._repeats + (worker < position.turn)
        first = list(itertools.islice(self.dataset, self._group)) if self._repeats else [None] * self._group
        self._items, self._is_loaded = noted["items"], self.has_state and begins_at(self.dataset, noted["state"])
        rows = self.dataset if self._is_loaded else itertools.islice(self.dataset, self._items, None)
        return itertools.chain(first * self.leading, self._counted(rows))

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


class PositioningCollator(CollatorWrapper):
    """A collator that adds to each batch where the stream is after it."""

    def __init__(self, collator: Any, stream: PositionedStream) -> None:
        self.collator, self._stream = collator, stream

    def __call__(self, features: Any) -> PositionedBatch:
        """A batch with a note. Raises TypeError for a state that JSON does not keep."""
        stream, worker = self._stream, here(0, 1).worker
        if stream.leading:
            stream.leading -= 1
            return PositionedBatch(None, worker, None)
        return PositionedBatch(self.collator(features), worker, stream.note())
