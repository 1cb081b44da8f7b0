"""The rows of a stream that one worker process of one rank reads."""

import copy
import functools
import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from quadrat.input.items import LazyTable

_INSIDE = ("ex_iterable", "ex_iterables")  # where a `datasets.IterableDataset` holds what it is made of
_BUFFER, _REBATCHED = "BufferShuffledExamplesIterable", "RebatchedArrowExamplesIterable"


class Reader(NamedTuple):
    """Which process reads: a worker of a DataLoader, of one rank."""

    worker: int
    workers: int
    rank: int
    ranks: int

    @property
    def share(self) -> int:
        """The number of the share of rows, below `shares`."""
        return self.rank * self.workers + self.worker

    @property
    def shares(self) -> int:
        return self.workers * self.ranks

    def row(self, number: int) -> str:
        """The name in error messages of a row that was read here."""
        return f"row {number}" + (f" of share {self.share} of {self.shares}" if self.shares > 1 else "")


class Share:
    """Iterates this worker's rows from a saved position, what `position()` returned."""

    def __init__(
        self, dataset: Any, reader: Reader, epoch: int, shards_itself: bool, position: Mapping[str, Any]
    ) -> None:
        self.read, state = position["rows"], position["source"]
        self._begin: dict[str, Any] | None = {"rows": self.read, "source": state}
        first, step = self.read, 1
        self._source: Any = None
        self._wanted = [1]  # how many rows the next part may be
        datasets = sys.modules.get("datasets")
        if datasets is not None and isinstance(dataset, datasets.IterableDataset):
            from datasets.distributed import split_dataset_by_node

            from quadrat.data.iterable import in_arrow

            # An object of its own, with epoch and state; in a worker, it takes that worker's shards.
            source, dataset = dataset, split_dataset_by_node(dataset, reader.rank, reader.ranks)
            if reader.ranks == 1:
                dataset._distributed = source._distributed  # to split by one would share `take` and `skip` among shards
            dataset._ex_iterable = own_examples(dataset._ex_iterable)
            dataset.set_epoch(epoch)
            if state is not None and begins_at(dataset, state):
                first = 0
            if keeps_its_place(dataset._ex_iterable):
                self._source = dataset
            if (prepare := getattr(dataset, "_prepare_ex_iterable_for_iteration", None)) is not None:
                wanted = self._wanted
                dataset._prepare_ex_iterable_for_iteration = lambda *args: in_arrow(prepare(*args), wanted)
        else:
            if hasattr(dataset, "set_epoch"):
                dataset.set_epoch(epoch)
            if not shards_itself:
                first, step = reader.share + self.read * reader.shares, reader.shares
        rows = iter(dataset() if _makes_rows(dataset) else dataset)
        next(itertools.islice(rows, first, first), None)
        self._rows: Iterator[Any] = itertools.islice(rows, 0, None, step)

    def take(self, count: int) -> list[Any]:
        """So many rows, or all that are left. Where a stream has them in Arrow, a `LazyTable` is several."""
        parts, left = [], count
        self._begin, self._wanted[0] = None, count
        for part in self._rows:
            parts.append(part)
            left -= len(part) if type(part) is LazyTable else 1
            if not left:
                break
            self._wanted[0] = left
        self.read += count - left
        return parts

    def position(self) -> dict[str, Any]:
        """Where the next row is: how many rows are read, and the state of a `datasets.IterableDataset`."""
        if self._begin is not None:  # the dataset has no state yet
            return self._begin
        return {"rows": self.read, "source": None if self._source is None else self._source.state_dict()}


def here(rank: int, ranks: int) -> Reader:
    info = sys.modules["torch.utils.data"].get_worker_info() if "torch.utils.data" in sys.modules else None
    return Reader(0, 1, rank, ranks) if info is None else Reader(info.id, info.num_workers, rank, ranks)


def require_rows(dataset: Any) -> None:
    """Raises TypeError unless rows can be read from a dataset again and again."""
    if isinstance(dataset, Mapping):
        raise TypeError(f"a {type(dataset).__name__} has no rows of its own: give one of {list(dataset)}")
    if isinstance(dataset, Iterator):
        raise TypeError(f"a {type(dataset).__name__} can be read only once: give the function that makes it")
    if not (_makes_rows(dataset) or hasattr(dataset, "__iter__") or hasattr(dataset, "__getitem__")):
        raise TypeError(f"a {type(dataset).__name__} has no rows: give an iterable of mappings")


def _makes_rows(dataset: Any) -> bool:
    return callable(dataset) and not hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__")


def parts_of(examples: Any) -> list[Any]:
    """The parts that the examples of a `datasets.IterableDataset` are made of."""
    inside = [getattr(examples, name, []) for name in _INSIDE]
    return [part for parts in inside for part in (parts if isinstance(parts, (list, tuple)) else [parts])]


def own_examples(examples: Any) -> Any:
    """The same examples with a state of their own: another iterator of the dataset, as of an evaluation, resets it."""
    twin = copy.copy(examples)
    for name in _INSIDE:
        if (part := getattr(twin, name, None)) is not None:
            many = isinstance(part, (list, tuple))
            setattr(twin, name, [*map(own_examples, part)] if many else own_examples(part))
    return twin


def begins_at(dataset: Any, state: Any) -> bool:
    """Have a dataset begin at a state. False if it begins anew: `datasets` cannot load some states of workers.

    It loads them into all parts of a concatenated dataset before it gives a worker its own.
    """
    dataset.load_state_dict(copy.deepcopy(state))
    try:
        getattr(dataset, "_prepare_ex_iterable_for_iteration", lambda: None)()
    except (IndexError, KeyError):
        dataset.load_state_dict(None)
        return False
    return True


def keeps_its_place(examples: Any) -> bool:
    """True if the state of a dataset says which row is next: it does not have the rows of a shuffle buffer."""
    name = type(examples).__name__
    if name == _BUFFER or (name == _REBATCHED and examples.batch_size != 1 and not _counts_batches()):
        return False
    return all(map(keeps_its_place, parts_of(examples)))


@functools.cache
def _counts_batches() -> bool:
    """True if the installed `datasets` counts batches across shards right when it resumes for a second time."""
    from datasets import Dataset

    def after(count: int, state: Any = None) -> Any:
        stream = Dataset.from_dict({"row": range(20)}).to_iterable_dataset(num_shards=2).batch(3)
        if state is not None:
            stream.load_state_dict(state)
        return [row["row"] for row in itertools.islice(stream, count)], stream.state_dict()

    return bool(after(9)[0][6:] == after(9, after(1, after(5)[1])[1])[0])
