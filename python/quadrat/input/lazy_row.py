"""Rows of a stream that stay in Arrow: dicts whose values are made when one is read."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from quadrat import _core
from quadrat.input.rows import Rows, table_of_arrow

if TYPE_CHECKING:
    import pyarrow

_lock = threading.Lock()
_ROWS_OF_A_CHUNK = 16  # on average; it costs less to copy fewer than to read where each chunk is


class Reads:
    """Tells if other code than a collator read one of the rows that stayed in Arrow."""

    found = False


class LazyTable:
    """A table whose rows are read one by one: as Arrow has it, and as collators read it. In a stream, all its rows."""

    def __init__(self, arrow: pyarrow.Table, reads: Reads | None = None) -> None:
        self.arrow, self.reads = arrow, Reads() if reads is None else reads

    def __len__(self) -> int:
        return len(self.arrow)

    @classmethod
    def joined(cls, sources: Sequence[LazyTable]) -> LazyTable | None:
        """One source of the rows of several; None where they differ in their columns."""
        if len(sources) == 1:
            return sources[0]
        if any(source.arrow.schema != sources[0].arrow.schema for source in sources):
            return None
        import pyarrow as pa

        return cls(pa.concat_tables([source.arrow for source in sources]))

    @functools.cached_property
    def table(self) -> _core.Table:
        """The table as collators read it."""
        if any(len(self.arrow) < _ROWS_OF_A_CHUNK * column.num_chunks for column in self.arrow.columns):
            self.arrow = self.arrow.combine_chunks()
        return table_of_arrow(self.arrow)

    def rows(self, places: Iterable[int]) -> Iterator[LazyRow]:
        """The rows at these places."""
        unread = dict.fromkeys(self.arrow.column_names, UNREAD)
        for place in places:
            row = LazyRow(unread)
            row.where = self, place
            yield row


class _Unread:
    """The value that C code finds when it reads the memory of a row that is not read yet."""

    def __repr__(self) -> str:
        return "<in Arrow: give dict(row)>"


UNREAD = _Unread()


class LazyRow(dict[str, Any]):
    """A row that lies in Arrow: a dict whose values are made when one is read. Pickles and copies are plain dicts."""

    where: tuple[LazyTable, int] | None = None  # until it is read

    def read(self) -> None:
        """Make the values."""
        where = self.where
        if where is not None:
            source, place = where
            source.reads.found = True
            values = source.table.row(place)
            with _lock:
                if self.where is not None:  # another thread may have read the row, and changed it
                    dict.update(self, values)
                    self.where = None

    def plain(self) -> dict[str, Any]:
        """The row as a plain dict of the same values."""
        return {**self}

    def __iter__(self) -> Iterator[str]:
        """The names; a class with its own `__iter__` is read by `[]` where a dict is copied."""
        return dict.__iter__(self)

    copy = plain

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.plain(),)


def _reading(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    @functools.wraps(method)
    def call(self: LazyRow, *args: Any, **kwargs: Any) -> Any:
        self.read()
        return method(self, *args, **kwargs)

    return call


for _name in (
    *("__getitem__", "__setitem__", "__delitem__", "__eq__", "__ne__", "__or__", "__ror__", "__ior__", "__repr__"),
    *("clear", "get", "items", "pop", "popitem", "setdefault", "update", "values"),
):
    setattr(LazyRow, _name, _reading(_name))
LazyRow.__hash__ = None


def together(rows: Sequence[Any]) -> tuple[LazyTable, Sequence[int]] | None:
    """One source of rows that nobody has read, or of all rows of sources, and their places in it; else None."""
    if rows and all(type(row) is LazyTable for row in rows):
        return None if (whole := LazyTable.joined(rows)) is None else (whole, range(len(whole)))
    found = [row.where if type(row) is LazyRow else None for row in rows]
    if not found or None in found:
        return None
    firsts: dict[int, int] = {}  # by the id of a source, the place of its first row among those of all sources
    sources: list[LazyTable] = []
    total = 0
    for source, _ in found:  # type: ignore[misc]
        if id(source) not in firsts:
            firsts[id(source)] = total
            total += len(source)
            sources.append(source)
    joined = LazyTable.joined(sources)
    return None if joined is None else (joined, [firsts[id(source)] + place for source, place in found])  # type: ignore[misc]


def as_columns(features: Any) -> Any:
    """Features among which are `LazyRow`s: as `Rows` where all are and nobody has read one, else with plain dicts."""
    if type(features) not in (list, tuple) or LazyRow not in map(type, features):
        return features
    found = together(features)
    if found is not None:
        return Rows(found[0].table, found[1])
    return [row.plain() if type(row) is LazyRow else row for row in features]
