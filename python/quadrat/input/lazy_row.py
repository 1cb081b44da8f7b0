"""Rows of a stream that stay in Arrow: dicts whose values are made when one is read."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from quadrat import _core
from quadrat.input.rows import Rows, table_of_arrow

if TYPE_CHECKING:
    import pyarrow

_lock = threading.Lock()
_ROWS_OF_A_CHUNK = 16  # on average; it costs less to copy fewer than to read where each chunk is


class Source(NamedTuple):
    """A table whose rows are read one by one: as Arrow has it, and as collators read it."""

    arrow: pyarrow.Table
    table: _core.Table

    @classmethod
    def of(cls, arrow: pyarrow.Table) -> Source:
        """The source of a table of pyarrow."""
        if any(len(arrow) < _ROWS_OF_A_CHUNK * column.num_chunks for column in arrow.columns):
            arrow = arrow.combine_chunks()
        return cls(arrow, table_of_arrow(arrow))

    def rows(self, places: Iterable[int]) -> Iterator[LazyRow]:
        """The rows at these places."""
        unread = dict.fromkeys(self.arrow.column_names, UNREAD)
        for place in places:
            row = LazyRow(unread)
            row.where = self, place
            yield row


class _Unread:
    """What C code finds that reads the memory of a row that is not read yet."""

    def __repr__(self) -> str:
        return "<in Arrow: give dict(row)>"


UNREAD = _Unread()


class LazyRow(dict[str, Any]):
    """A row that lies in Arrow: a dict of Python's numbers, texts and lists, which are made when a value is read.

    quadrat's collators read a row that nobody has read from Arrow. Pickles and copies are plain dicts.
    """

    where: tuple[Source, int] | None = None  # until it is read

    def read(self) -> None:
        """Make the values."""
        where = self.where
        if where is not None:
            values = where[0].table.row(where[1])
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

    def copy(self) -> dict[str, Any]:
        """A plain dict."""
        return self.plain()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles a plain dict."""
        return dict, (self.plain(),)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """As `__reduce__`."""
        return self.__reduce__()


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


def together(rows: Sequence[Any], columns: Sequence[str] | None = None) -> tuple[Source, list[int]] | None:
    """One source of rows that nobody has read, with these columns (None: all), and the place of each row in it.

    None where a row is another object or was read, or the rows differ in their columns.
    """
    found = [row.where if type(row) is LazyRow else None for row in rows]
    if not found or None in found:
        return None
    firsts: dict[int, int] = {}  # by the id of a source, the place of its first row among those of all sources
    sources: list[Source] = []
    total = 0
    for source, _ in found:  # type: ignore[misc]
        if id(source) not in firsts:
            firsts[id(source)] = total
            total += len(source.arrow)
            sources.append(source)
    places = [firsts[id(source)] + place for source, place in found]  # type: ignore[misc]
    if len(sources) == 1 and columns is None:
        return sources[0], places
    import pyarrow as pa

    if any(source.arrow.schema != sources[0].arrow.schema for source in sources):
        return None
    if columns is not None and not set(columns) <= set(sources[0].arrow.column_names):
        return None
    joined = pa.concat_tables([source.arrow for source in sources])
    return Source.of(joined if columns is None else joined.select(columns)), places


def as_columns(features: Any) -> Any:
    """Features that begin with a `LazyRow`: as `Rows` where nobody has read one, else with plain dicts."""
    if type(features) not in (list, tuple) or not features or type(features[0]) is not LazyRow:
        return features
    found = together(features)
    if found is not None:
        return Rows(found[0].table, found[1])
    return [row.plain() if type(row) is LazyRow else row for row in features]
