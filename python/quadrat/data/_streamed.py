"""An iterable dataset whose items are groups of a stream's rows, planned window by window."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quadrat.batching.lengths import lengths
from quadrat.data._share import Place, Share, here, require_rows
from quadrat.input.items import Pieces
from quadrat.ops._philox import epoch_of, number_below, seed_of
from quadrat.ragged import Ragged
from quadrat.support.shared import shared_number

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

    _Base = IterableDataset[Any]
else:
    try:
        from torch.utils.data import IterableDataset as _Base
    except ModuleNotFoundError:  # a stream is what can be iterated over
        _Base = object

IntArray = NDArray[np.int64]


class Units(NamedTuple):
    """What is put into groups: rows, or pieces of rows.

    Attributes:
        rows: the row of each unit.
        pieces: the part of that row.
    """

    rows: list[Any]
    pieces: Pieces

    def chosen(self, numbers: Sequence[int]) -> Units:
        """Some of them."""
        at = np.array(numbers, np.int64)
        return Units([self.rows[number] for number in numbers], Pieces(*(part[at] for part in self.pieces)))

    def and_then(self, others: Units) -> Units:
        """These and others after them."""
        both = zip(self.pieces, others.pieces, strict=True)
        return Units(self.rows + others.rows, Pieces(*(np.concatenate(parts) for parts in both)))


_NONE = Units([], Pieces(*(np.empty(0, np.int64) for _ in Pieces._fields)))


class StreamedDataset(_Base):
    """What `BatchedStream` and `PackedStream` share: an item is a group of rows of one window.

    A window is the next `window` rows of the stream, after the rows held back from the window before: those of its
    emptiest group. A row is held back at most once.
    """

    _OVERLONG: tuple[str, ...]

    def __init__(
        self,
        dataset: Any,
        *,
        limit: int,
        overlong: str,
        window: int,
        shuffle: bool,
        seed: int,
        column: str,
        columns: Sequence[str] | None,
        world_size: int,
        rank: int,
        shards_itself: bool,
    ) -> None:
        if overlong not in self._OVERLONG:
            raise ValueError(f"overlong must be one of {', '.join(map(repr, self._OVERLONG))}, not {overlong!r}")
        if isinstance(columns, str):
            raise TypeError(f"columns must be a list of names: give [{columns!r}]")
        if columns is not None and column not in columns:
            raise ValueError(f"columns={list(columns)} must contain {column!r}, whose lengths are used")
        require_rows(dataset)
        self.dataset = dataset
        self.columns = None if columns is None else list(columns)
        self.world_size = number_below(world_size, "world_size", 1 << 32, 1)
        self.rank = number_below(rank, "rank", self.world_size)
        self._limit, self._overlong, self._column = limit, overlong, column
        self._window = number_below(window, "window", 1 << 62, 1)
        self._shuffle, self._seed = bool(shuffle), seed_of(seed)
        self._shards_itself = bool(shards_itself)
        self._epoch = shared_number()
        self._at = self._start()  # what the last iteration has handed out
        self._resumes = False

    def _plan(self, sizes: IntArray, seed: int) -> tuple[Ragged, int]:
        """The groups of units of these sizes, and which of them may wait for more rows."""
        raise NotImplementedError

    def _items(self, units: Units, groups: Ragged) -> Iterable[Any]:
        """The items of groups."""
        raise NotImplementedError

    def _settings(self) -> dict[str, Any]:
        """What the groups depend on, besides the rows."""
        return {
            "stream": type(self).__name__,
            "limit": self._limit,
            "overlong": self._overlong,
            "column": self._column,
            "rows_of_a_window": self._window,
            "shuffle": self._shuffle,
            "seed": self._seed,
            "world_size": self.world_size,
            "rank": self.rank,
            "shards_itself": self._shards_itself,
        }

    @property
    def epoch(self) -> int:
        """The current epoch; see `set_epoch`."""
        return int(self._epoch[()])

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, also in worker processes of a DataLoader.

        If the dataset has `set_epoch`, that is called with this epoch too. A new epoch begins with its first item.

        Raises:
            TypeError, ValueError: unless it is a whole number below `2**32`.
        """
        self._epoch[()] = epoch_of(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The position of the last iteration: a dict of numbers, names and the state of a `datasets.IterableDataset`.

        It counts the items that this process has returned. In a DataLoader with workers, each worker has its own state,
        and the `StatefulDataLoader` of torchdata collects them.
        """
        at = self._at if self._at["epoch"] == self.epoch else self._start()
        return {**copy.deepcopy(at), **self._settings()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state: the next iteration begins with the item after those of the state.

        That iteration raises ValueError if row lengths have changed, or in another worker process.

        Raises:
            KeyError: when an entry is missing.
            ValueError: when the state is from a stream with other options.
        """
        differing = [
            f"{name} is {value!r} here and {state[name]!r} in the state"
            for name, value in self._settings().items()
            if state[name] != value
        ]
        if differing:
            raise ValueError(f"the state is from another stream: {'; '.join(differing)}")
        at = {name: copy.deepcopy(state[name]) for name in self._start()}
        self.set_epoch(at["epoch"])
        self._at, self._resumes = at, True

    def __iter__(self) -> Iterator[Any]:
        """The items of the current epoch, from the first one, or from where `load_state_dict` left off."""
        at = self._start()
        if self._resumes and self._at["epoch"] == at["epoch"]:
            known, now = ((start["worker"], start["workers"]) for start in (self._at, at))
            if known != now:
                raise ValueError(f"the state is from worker {known[0]} of {known[1]}, but this is {now[0]} of {now[1]}")
            at = copy.deepcopy(self._at)
        self._at, self._resumes = at, False
        return self._iterate(at)

    def _start(self) -> dict[str, Any]:
        """The position before the first item.

        "rows" and "source" are the position to read rows from, and "kept" are the rows held back since then. "lengths"
        is a checksum of the window whose items are "given".
        """
        worker, workers, *_ = here(0, 1)
        start: dict[str, Any] = {"rows": 0, "source": None, "kept": [], "window": 0, "given": 0, "lengths": None}
        return {"epoch": self.epoch, "worker": worker, "workers": workers, **start}

    def _iterate(self, at: dict[str, Any]) -> Iterator[Any]:
        place = here(self.rank, self.world_size)
        share = Share(self.dataset, place, at["epoch"], self._shards_itself, at)
        waiting = self._read(share, place)[0].chosen(at["kept"]) if at["kept"] else _NONE
        while True:
            position = share.position()
            fresh, ends = self._read(share, place)
            units, waited = waiting.and_then(fresh), len(waiting.rows)
            if not units.rows:
                return
            checksum = zlib.crc32(units.pieces.lengths.data)
            if at["lengths"] not in (None, checksum):
                raise ValueError("the state is from another dataset: its rows had other lengths")
            at["lengths"] = checksum
            groups, kept = self._groups(units.pieces.sizes, self._window_seed(at, place), waited, ends)
            for item in self._items(units, groups[at["given"] :]):
                at["given"] += 1
                self._at = at
                yield item
            if ends:
                return
            waiting = units.chosen(kept)
            # Rows that are held back are read again from the beginning of this window.
            start = {**(position if kept else share.position()), "kept": [number - waited for number in kept]}
            at = {**at, **start, "window": at["window"] + 1, "given": 0, "lengths": None}

    def _read(self, share: Share, place: Place) -> tuple[Units, bool]:
        """The units of the next rows, and whether they are the last ones."""
        first, rows = share.read, share.take(self._window)
        for number, row in enumerate(rows, first):
            if not isinstance(row, Mapping):
                raise TypeError(f"{place.row(number)} is a {type(row).__name__}, not a mapping")
        ends = len(rows) < self._window
        try:
            known = lengths(rows, self._column)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error} (counted from {place.row(first)})") from None
        if self._overlong == "error" and rows and (longest := int(known.max())) > self._limit:
            others = "'truncate' cuts such rows, 'split' packs them in pieces"
            raise ValueError(
                f"{place.row(first + int(known.argmax()))} has {longest} tokens, more than {self._limit}; overlong="
                + (others if "split" in self._OVERLONG else "'alone' makes such a row a batch of its own")
            )
        if self.columns is not None:
            try:
                rows = [{name: row[name] for name in self.columns} for row in rows]
            except KeyError as error:
                raise ValueError(f"no column {error}: there are {list(rows[0])}") from error
        return self._units(rows, known, first), ends

    def _units(self, rows: list[Any], known: IntArray, first: int) -> Units:
        """Rows of these lengths, or pieces of rows that are too long; `first` is the number of the first row."""
        if self._overlong not in ("truncate", "split"):
            return Units(rows, Pieces(np.arange(first, first + len(rows)), known, np.zeros_like(known), known))
        counts = np.maximum(-(-known // self._limit), 1) if self._overlong == "split" else np.ones_like(known)
        numbers = np.repeat(np.arange(len(rows)), counts)
        starts = (np.arange(len(numbers)) - np.repeat(counts.cumsum() - counts, counts)) * self._limit
        known = known[numbers]
        pieces = Pieces(numbers + first, known, starts, np.minimum(known - starts, self._limit))
        return Units([rows[number] for number in numbers.tolist()], pieces)

    def _groups(self, sizes: IntArray, seed: int, waited: int, ends: bool) -> tuple[Ragged, list[int]]:
        """The groups of a window, of whose units so many have waited, and the units that wait for the next one."""
        groups, emptiest = self._plan(sizes, seed)
        kept = [] if ends else groups[[emptiest]].values.tolist()
        if not kept or min(kept) < waited:
            return groups, []
        return groups[np.delete(np.arange(len(groups)), emptiest)], kept

    def _window_seed(self, at: Mapping[str, Any], place: Place) -> int:
        sequence = np.random.SeedSequence((self._seed, at["epoch"], place.share, at["window"]))
        return int(sequence.generate_state(1, np.uint64)[0])
