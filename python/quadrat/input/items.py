"""Items of a dataset other than plain rows: batches and packs, which stand for several; rows that stay in Arrow."""

from __future__ import annotations

import functools
import itertools
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.input.rows import MAIN, Rows, names_of, rows_of, rows_of_columns, table_of_arrow
from quadrat.ragged import Ragged
from quadrat.support.arrays import IntArray
from quadrat.support.columns import INTS, ROWS, explain, inferred_kind
from quadrat.support.kinds import BFLOAT16, FLOAT64, INT64, KINDS
from quadrat.support.locks import new_lock
from quadrat.support.memory import address_of, interop

if TYPE_CHECKING:
    import pyarrow

# The column that says which documents a row was packed from, as TRL names it.
SEQ_LENGTHS = "seq_lengths"
_ROWS_OF_A_CHUNK = 16  # on average; it costs less to copy fewer than to read where each chunk is
_lock = new_lock()  # of rows that are read
_INSTEAD = {MAIN: "tokenize texts first", SEQ_LENGTHS: "give the lengths of documents"}


class Pieces(NamedTuple):
    """Pieces of rows, `[rows]` each, in tokens."""

    rows: IntArray  # the number of each row, for errors
    lengths: IntArray  # how long it is
    starts: IntArray  # where in it to begin
    sizes: IntArray  # how many tokens to take

    def at(self, places: Any) -> Pieces:
        """Some of them."""
        return Pieces(*(part[places] for part in self))


class Batch(list[Any]):
    """The rows of a batch, if a dataset has them as one item."""


class Pack(UserDict[str, Any]):
    """Documents that were joined to one row.

    `pack["input_ids"]` is an array with the tokens of all documents, as is each extra column, and `pack["seq_lengths"]`
    says how long each document is. It is not a dict: Trainer would remove columns of it that the model does not take.
    """

    def __repr__(self) -> str:
        sizes, *columns = self[SEQ_LENGTHS], *(name for name in self if name != SEQ_LENGTHS)
        return f"Pack({sizes.sum()} tokens, {len(sizes)} documents, columns {columns})"


def packs_of(rows: Any, column: str, pieces: Pieces, offsets: IntArray) -> list[Pack]:
    """Packs of pieces of `Rows` or mappings, from `offsets[i]` to `offsets[i + 1]` for pack i, in shared memory."""
    if not len(rows):
        return []
    names = rows.names if isinstance(rows, Rows) else list(rows[0])
    if column not in names:
        raise ValueError(f"rows have no column {column!r}: there are {list(names)}")
    values, sizes = join(rows, names, pieces)
    tokens = np.concatenate(([0], sizes.cumsum()))[offsets].tolist()
    columns = [*((name, column, tokens) for name, column in values.items()), (SEQ_LENGTHS, sizes, offsets.tolist())]
    packs = [Pack() for _ in offsets[1:]]
    for at, pack in enumerate(packs):
        pack.data = {name: column[bounds[at] : bounds[at + 1]] for name, column, bounds in columns}
    return packs


def normalise(features: Any, *, bare: bool) -> Any:
    """Features in the form of `rows_of`, a batch or a list of one taken apart. Raises ValueError for several."""
    return rows_of(as_columns(unwrapped(features)), bare=bare)


def unwrapped(features: Any) -> Any:
    """The rows of a batch that a dataset has as one item; other features as they are. Raises ValueError for several."""
    if type(features) in (list, tuple) and features and type(features[0]) in (Batch, Rows):
        if len(features) > 1:
            raise ValueError(
                f"{len(features)} batches at once: each item of the dataset is a whole batch, so the DataLoader takes "
                "one (batch_size=1; in Trainer, per_device_train_batch_size=1)"
            )
        features = features[0]
    return list(features) if type(features) is Batch else features


def is_packed(features: Any) -> bool:
    """True if features, in one form, are rows that were packed: each has ints that say how long its documents are."""
    collected = _core.collect(features, (SEQ_LENGTHS, MAIN), interop())
    if collected is None or not len(features):
        return False
    forms, _, kinds, *_ = collected[1].describe(0)
    return not (forms & ~ROWS or kinds & ~INTS)


def join(features: Any, names: Sequence[str], pieces: Pieces | None = None) -> tuple[dict[str, NDArray[Any]], IntArray]:
    """Columns of `Rows` or mappings, or pieces of them, each as one array, and the tokens of each row.

    Raises TypeError where a column does not hold rows of numbers, ValueError where lengths differ, also from `pieces`.
    """
    collected = _core.collect(as_columns(features), tuple(names), interop())
    if collected is None:
        has_all = [isinstance(row, Mapping) and all(name in row for name in names) for row in features]
        which = f"row {has_all.index(False)} is not" if False in has_all else "these are not"
        raise TypeError(f"rows must be mappings, each with the columns {list(names)} of the first one: {which}")
    columns, values, kinds = collected[1], {}, []
    sizes = np.empty(columns.count(0), np.int64)
    for index, name in enumerate(names):
        if (kind := _kind_of(columns, index)) is None:
            remedy = _INSTEAD.get(name, "name the columns to keep, columns=[...]")
            raise TypeError(f"column {name!r} does not hold rows of numbers: {remedy}")
        kinds.append(kind)
        if (row := columns.first_difference(0, index)) >= 0:
            first, other = (len(_value(features, row, column)) for column in (names[0], name))
            raise ValueError(
                f"row {row if pieces is None else pieces.rows[row]} has {first} tokens in {names[0]!r} and {other} in "
                f"{name!r}: rows are joined where all columns are equally long"
            )
    columns.lengths(0, address_of(sizes))
    if pieces is not None:
        if (wrong := np.flatnonzero(sizes != pieces.lengths)).size:
            row = int(wrong[0])
            counts = f"{sizes[row]} tokens in {names[0]!r}, and lengths say {pieces.lengths[row]}"
            raise ValueError(f"row {pieces.rows[row]} has {counts}")
        sizes = pieces.sizes
        columns = _cut(features, names, columns, pieces)
    for index, name in enumerate(names):
        kind, total = kinds[index], columns.describe(index)[5]
        values[name] = np.empty(total, KINDS[kind])
        if (failure := columns.flatten(index, address_of(values[name]), kind, total)) is not None:
            raise ValueError(f"column {name!r}: {explain(failure)}")
    return values, sizes


def _kind_of(columns: _core.Columns, index: int) -> int | None:
    """The kind of the numbers in a column's rows: the one Python would make of several; None where NumPy has none."""
    forms, _, kinds, *_ = columns.describe(index)
    if forms & ~ROWS:
        return None
    if not kinds & (kinds - 1):
        kind = kinds.bit_length() - 1 if kinds else INT64
        return None if kind == BFLOAT16 else kind
    return inferred_kind(kinds, FLOAT64)


def _cut(features: Any, names: Sequence[str], columns: _core.Columns, pieces: Pieces) -> _core.Columns:
    if (pieces.sizes == pieces.lengths).all():
        return columns
    if isinstance(features, Rows):
        starts, sizes = map(np.ascontiguousarray, (pieces.starts, pieces.sizes))
        for index in range(len(names)):
            columns.cut(index, address_of(starts), address_of(sizes))
        return columns
    spans = [slice(start, start + size) for start, size in zip(pieces.starts, pieces.sizes, strict=True)]
    parts = [{name: row[name][span] for name in names} for row, span in zip(features, spans, strict=True)]
    collected = _core.collect(parts, tuple(names), interop())
    assert collected is not None
    return collected[1]


def _value(features: Any, row: int, name: str) -> Any:
    return features.value(name, row) if isinstance(features, Rows) else features[row][name]


def documents_of(features: Any) -> Any:
    """The documents of packed rows, of which only columns with one number per token are left.

    Raises ValueError where `seq_lengths` do not sum to a row's tokens, and what `join` raises; KeyError for labels.
    """
    documents, packed = join(features, [SEQ_LENGTHS])
    lengths = documents[SEQ_LENGTHS].astype(np.int64)
    others = [name for name in names_of(features) or () if name != SEQ_LENGTHS]
    values, sizes = join(features, [name for name in others if name == MAIN or _joins(features, name)])
    ends, bounds = packed.cumsum(), np.concatenate(([0], lengths.cumsum()))
    wrong = np.flatnonzero(bounds[ends] != sizes.cumsum())
    if len(wrong) or (lengths < 0).any():
        row = int(wrong[0]) if len(wrong) else int(np.searchsorted(ends, (lengths < 0).argmax(), "right"))
        stored = f"{_value(features, row, SEQ_LENGTHS)!r:.60}"
        raise ValueError(f"row {row}: seq_lengths {stored} do not sum to its {sizes[row]} tokens")
    bounds = np.append(bounds[:-1][lengths > 0], bounds[-1])
    return rows_of_columns({name: Ragged(column, bounds) for name, column in values.items()})


def _joins(features: Any, name: str) -> bool:
    collected = _core.collect(features, (name,), interop())
    if collected is None and name == "labels":
        raise KeyError(name)  # as the reference does; it does not look at other columns
    return collected is not None and _kind_of(collected[1], 0) is not None


class Reads:
    """Tells if other code than a collator read one of the rows that stayed in Arrow."""

    any = False


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
            source.reads.any = True
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
    def call(*args: Any, **kwargs: Any) -> Any:
        for row in args:
            if type(row) is LazyRow:
                row.read()
        return method(*args, **kwargs)

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
    origins = [row.where if type(row) is LazyRow else None for row in rows]
    if not origins or None in origins:
        return None
    sources = list({id(source): source for source, _ in origins}.values())  # type: ignore[misc]
    # By the id of a source, the place of its first row among those of all sources.
    firsts = dict(zip(map(id, sources), itertools.accumulate(map(len, sources), initial=0), strict=False))
    joined = LazyTable.joined(sources)
    return None if joined is None else (joined, [firsts[id(source)] + place for source, place in origins])  # type: ignore[misc]


def as_columns(features: Any) -> Any:
    """Features among which are `LazyRow`s: as `Rows` where all are and nobody has read one, else with plain dicts."""
    if type(features) not in (list, tuple) or LazyRow not in map(type, features):
        return features
    if (unread := together(features)) is not None:
        return Rows(unread[0].table, unread[1])
    return [row.plain() if type(row) is LazyRow else row for row in features]
