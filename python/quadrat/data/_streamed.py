"""An iterable dataset whose items are groups of a stream's rows, planned window by window."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from quadrat.batching._epoch import Resumable, settings_of
from quadrat.batching.lengths import lengths, measure, parts_of, weighted
from quadrat.batching.packing import pieces_of, require_choice
from quadrat.data._grouped import columns_of, with_columns
from quadrat.data._stream_shard import Reader, Share, here, require_rows
from quadrat.input.items import LazyTable, Pieces, together
from quadrat.input.rows import Rows
from quadrat.ops._philox import number_below, seed_of
from quadrat.ragged import Ragged
from quadrat.support.arrays import IntArray

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

    _Base = IterableDataset[Any]
else:
    try:
        from torch.utils.data import IterableDataset as _Base
    except ModuleNotFoundError:  # a stream is what can be iterated over
        _Base = object


class Units(NamedTuple):
    """The members of groups: rows, or pieces of rows."""

    source: LazyTable | list[Any]  # where the rows are: in Arrow, or a list of them
    places: IntArray  # of each unit's row there
    pieces: Pieces  # the part of that row

    def chosen(self, numbers: Any) -> Units:
        return Units(self.source, self.places[numbers], self.pieces.at(numbers))

    def rows(self, numbers: Any) -> Any:
        """The rows of some of them: `Rows` if they are in Arrow, otherwise a list."""
        places = self.places[numbers].tolist()
        if isinstance(self.source, LazyTable):
            return Rows(self.source.table, places)
        return [self.source[place] for place in places]

    def and_then(self, others: Units) -> Units:
        if not len(self.places) or not len(others.places):
            return self if len(self.places) else others
        pieces = Pieces(*map(np.concatenate, zip(self.pieces, others.pieces, strict=True)))
        if isinstance(self.source, LazyTable) and isinstance(others.source, LazyTable):
            source = LazyTable.joined([self.source, others.source])
            if source is not None:
                return Units(source, np.append(self.places, others.places + len(self.source)), pieces)
        rows = [*self.rows(slice(None)), *others.rows(slice(None))]
        return Units(rows, np.arange(len(rows)), pieces)


_EMPTY = np.empty(0, np.int64)
_NONE = Units([], _EMPTY, Pieces(_EMPTY, _EMPTY, _EMPTY, _EMPTY))


class StreamOptions(NamedTuple):
    """The options that the groups of a stream depend on: entries of a state."""

    limit: int  # the tokens of a row at most
    overlong: str
    column: str
    rows_of_a_window: int
    shuffle: bool
    seed: int
    world_size: int
    rank: int
    shards_itself: bool
    weights: str = ""  # the column of what rows take besides their tokens; empty: none


class StreamedDataset(Resumable, _Base):
    """The base of `BatchedStream` and `PackedStream`: an item is a group of rows of a window, or held back before."""

    _IS = "stream"
    _OVERLONG: tuple[str, ...]
    _advice: str  # what to do about a row that is too long

    def __init__(self, dataset: Any, columns: Sequence[str] | None, options: StreamOptions, **plan: Any) -> None:
        require_choice(options.overlong, "overlong", self._OVERLONG)
        self.world_size = number_below(options.world_size, "world_size", 1 << 32, 1)
        self._options = options._replace(
            rows_of_a_window=number_below(options.rows_of_a_window, "window", 1 << 62, 1),
            shuffle=bool(options.shuffle),
            seed=seed_of(options.seed),
            world_size=self.world_size,
            rank=number_below(options.rank, "rank", self.world_size),
            shards_itself=bool(options.shards_itself),
        )
        super().__init__(settings_of({"stream": type(self).__name__, **self._options._asdict(), **plan}))
        self.columns = columns_of(columns, options.column)
        require_rows(dataset)
        self.dataset, self.rank = dataset, self._options.rank

    def _plan(self, sizes: IntArray, seed: int) -> tuple[Ragged, list[int]]:
        """The groups of units of these sizes, and which of them may wait for more rows."""
        raise NotImplementedError

    def _items(self, units: Units, groups: Ragged) -> Iterable[Any]:
        raise NotImplementedError

    def __repr__(self) -> str:
        options = self._options
        return (
            f"{type(self).__name__}({type(self.dataset).__name__}, {options.limit}, window={options.rows_of_a_window}, "
            f"seed={options.seed}, world_size={self.world_size}, rank={self.rank}, epoch={self.epoch})"
        )

    def __iter__(self) -> Iterator[Any]:
        """The items of the current epoch, from the first one, or from where `load_state_dict` left off."""
        at, reader = self._begin(), here(self.rank, self.world_size)
        if (at["worker"], at["workers"]) != reader[:2]:
            raise ValueError(
                f"the state is from worker {at['worker']} of {at['workers']}, but this is {reader.worker} of "
                f"{reader.workers}"
            )
        return self._iterate(at, reader)

    def _start(self) -> dict[str, Any]:
        # "rows" and "source": where to read rows from. "kept": the rows held back since then. "lengths": a checksum of
        # the window whose items are "given".
        worker, workers, *_ = here(0, 1)
        start: dict[str, Any] = {"rows": 0, "source": None, "kept": [], "window": 0, "given": 0, "lengths": None}
        return {"epoch": self.epoch, "worker": worker, "workers": workers, **start}

    def _check(self, at: dict[str, Any]) -> None:
        for name in ("worker", "workers", "rows", "window", "given"):
            at[name] = number_below(at[name], name, 1 << 62)
        for number in at["kept"]:
            number_below(number, "kept", 1 << 62)
        if at["given"] and at["lengths"] is None:
            raise ValueError(f"the state has {at['given']} items of a window without a checksum of its lengths")

    def _iterate(self, at: dict[str, Any], reader: Reader) -> Iterator[Any]:
        share = Share(self.dataset, reader, at["epoch"], self._options.shards_itself, at)
        waiting = _NONE
        if at["kept"]:
            waiting = self._read(share, reader)[0]
            if max(at["kept"]) >= len(waiting.places):
                raise ValueError(f"the state keeps row {max(at['kept'])} of a window of {len(waiting.places)}")
            waiting = waiting.chosen(at["kept"])
        while True:
            position = share.position()
            fresh, ends = self._read(share, reader)
            units, waited = waiting.and_then(fresh), len(waiting.places)
            if not len(units.places) and at["lengths"] is None:
                return
            checksum = zlib.crc32(units.pieces.lengths.data)
            if at["lengths"] not in (None, checksum):
                raise ValueError("the state is from another dataset: its rows had other lengths")
            at = {**at, "lengths": checksum}
            sequence = np.random.SeedSequence((self._options.seed, at["epoch"], reader.share, at["window"]))
            seed = int(sequence.generate_state(1, np.uint64)[0])
            groups, kept = self._groups(units.pieces.sizes, seed, waited, ends)
            if at["given"] > len(groups):
                raise ValueError(f"the state has {at['given']} items of a window that has {len(groups)}")
            for item in self._items(units, groups[at["given"] :]):
                self._at = at = {**at, "given": at["given"] + 1}
                yield item
            if ends:
                return
            kept = [number - waited for number in kept]
            waiting = fresh.chosen(kept)
            # Rows that are held back are read again from the beginning of this window.
            start = {**(position if kept else share.position()), "kept": kept}
            at = {**at, **start, "window": at["window"] + 1, "given": 0, "lengths": None}

    def _read(self, share: Share, reader: Reader) -> tuple[Units, bool]:
        """The units of the next rows, and whether they are the last ones."""
        first, limit, overlong = share.read, self._options.limit, self._options.overlong
        window = self._options.rows_of_a_window
        try:
            source, places, known = self._measured(share.take(window))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error} (counted from {reader.row(first)})") from None
        if overlong == "error" and len(known) and (longest := int(known.max())) > limit:
            row = reader.row(first + int(known.argmax()))
            raise ValueError(f"{row} has {longest} tokens, more than {limit}; {self._advice}")
        if isinstance(source, list):
            source = with_columns(source, self.columns)
        numbers, starts, sizes = pieces_of(known, limit, overlong)
        if numbers is None or starts is None:
            numbers, starts = np.arange(len(known)), np.zeros_like(known)
        units = Units(source, places[numbers], Pieces(numbers + first, known[numbers], starts, sizes))
        return units, len(known) < window

    def _measured(self, parts: list[Any]) -> tuple[LazyTable | list[Any], IntArray, IntArray]:
        """Where the rows that were read are, the place of each there, and its length."""
        rows_together, column, weights = together(parts), self._options.column, self._options.weights
        if rows_together is not None and set(self.columns or ()) <= set(rows_together[0].arrow.column_names):
            arrow, places = rows_together[0].arrow, np.array(rows_together[1])
            source = rows_together[0] if self.columns is None else LazyTable(arrow.select(self.columns))
            try:
                return source, places, lengths(arrow, column, weights=weights or None)[places]
            except (TypeError, ValueError):  # of one of the rows, or of another one: `measure` says which
                pass
        rows = [row for part in parts for row in (part.rows(range(len(part))) if type(part) is LazyTable else [part])]
        known = measure(rows, len(rows), column)
        return rows, np.arange(len(rows)), weighted(known, parts_of(rows, (weights,))) if weights else known

    def _groups(self, sizes: IntArray, seed: int, waited: int, ends: bool) -> tuple[Ragged, list[int]]:
        """The groups of a window, of whose units so many have waited, and the units that wait for the next one."""
        groups, waiting = self._plan(sizes, seed)
        waiting = [] if ends else [group for group in waiting if min(groups[group].tolist(), default=0) >= waited]
        if not waiting:
            return groups, []
        return groups[np.delete(np.arange(len(groups)), waiting)], groups[waiting].values.tolist()
