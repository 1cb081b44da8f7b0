"""The rows of a `datasets.IterableDataset` where they lie in Arrow, with the order and the states of `datasets`."""

import copy
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from quadrat.data.arrow import is_plain_type
from quadrat.input.items import LazyTable, Reads
from quadrat.support.extras import needs

with needs("quadrat.data.iterable", "datasets"):
    import datasets
    import pyarrow as pa
    from datasets import iterable_dataset as streams
    from datasets.features.features import require_decoding

_SMALLEST = 8  # rows of a table; fewer cost more to open than to read
_TOGETHER = 60  # rows that are made at once, some times the 10 that `datasets` reads at once
_LONGEST_PAUSE, _MOST_DICTS = 1 << 12, 1 << 16  # rows that come as dicts for each one that was read, and in all
_Examples = Iterator[tuple[Any, Any]]
_Parts = Iterable[tuple[int, Iterable[Any]]]  # how many rows each part is, and parts
_Read = Callable[[Any, pa.Table], Iterable[Any]]

# What passes on the rows it is given, one by one.
_PASSING = ("RebatchedArrow", "Skip", "Take", "Step", "Repeat", "BufferShuffled", "InterleavedShards",
            "CyclingMultiSources", "RandomlyCyclingMultiSources", "VerticallyConcatenatedMultiSources")  # fmt: skip
# Of these, those that do not count them, so that a `LazyTable` of several passes too.
_NOT_COUNTING = ("RebatchedArrow", "Repeat", "VerticallyConcatenatedMultiSources")
_INSIDE = {"ex_iterable", "ex_iterables", "_interleaved"}  # where these hold what gives it
_Arrow: Any = streams.ArrowExamplesIterable
_Rebatched: Any = streams.RebatchedArrowExamplesIterable
_Formatted: Any = getattr(streams, "FormattedExamplesIterable", type("None", (_Rebatched,), {}))  # absent before 3.1


def _reader(iterate: Callable[[Any], _Examples], most: int | None = None) -> _Read:
    """Reads tables one after the other as `datasets` does, so many rows at once, with one iterator for all."""
    waiting: list[tuple[Any, pa.Table]] = []

    def tables() -> Iterator[tuple[Any, pa.Table]]:
        while True:
            key, table = waiting.pop()
            step = most or len(table)
            yield from ((key, table.slice(at, step)) for at in range(0, len(table), step))

    examples = iterate(_Arrow(tables, {}))

    def read(key: Any, table: pa.Table) -> Iterable[Any]:
        waiting.append((key, table))
        return map(operator.itemgetter(1), itertools.islice(examples, len(table) if table.num_columns else 0))

    return read


def _dicts_of(key: Any, table: pa.Table, first: int, count: int, read: _Read) -> Iterable[Any]:
    part = table if count == len(table) else table.slice(first, count)
    try:
        return part.to_pylist()  # type: ignore[no-any-return]
    except Exception:  # of one of these rows: `datasets` raises it when that row is read
        return read(key, part)


class _InArrow:
    wanted: list[int] | None = None  # how many rows come next as one `LazyTable`, at most; None: rows come one by one
    _decodes = False  # whether values are decoded
    # The schema of the last table, whether Python has all its types, and whether values do not depend on other rows.
    _known: tuple[Any, bool, bool] = pa.schema([]), False, False
    _reads: Reads
    _in_arrow = _as_dicts = 0  # rows that came last, in Arrow; that come next as dicts, because one of those was read
    _pause = 16

    def _parts_of(self, key: Any, table: pa.Table, first: int, read: _Read) -> _Parts:
        """The rows of a table from `first` on, several at once or one by one."""
        if not (schema := table.schema).equals(self._known[0]):
            unique = len(set(schema.names)) == len(schema) and not self._decodes
            plain = unique and all(map(is_plain_type, schema.types))
            self._known = schema, plain, unique and "extension<" not in str(schema.types)
        _, plain, apart = self._known
        if plain and self.wanted is not None:
            return self._sources_of(table, first, self.wanted)
        if not apart:
            return ((1, read(key, table.slice(first) if first else table)),)
        count = len(table) - first
        if count > _TOGETHER or (plain and len(table) >= _SMALLEST and count > self._as_dicts):
            return self._rows_of(key, table, first, read)
        self._as_dicts = max(self._as_dicts - count, 0)
        return ((1, _dicts_of(key, table, first, count, read)),)

    def _rows_of(self, key: Any, table: pa.Table, first: int, read: _Read) -> _Parts:
        source, reads, plain = LazyTable(table, self._reads), self._reads, self._known[1]

        def in_arrow() -> Iterator[Any]:
            nonlocal first
            for row in source.rows(range(first, len(table))):
                first += 1
                self._in_arrow += 1
                yield row
                if reads.any:
                    break

        while first < len(table):
            if reads.any:
                self._pause = min(4 * self._pause, _LONGEST_PAUSE)
                self._in_arrow, self._as_dicts, reads.any = 0, min(self._pause * self._in_arrow, _MOST_DICTS), False
            if self._as_dicts > 0 or not plain:
                count = min(len(table) - first, _TOGETHER - first % _TOGETHER)
                rows, first = _dicts_of(key, table, first, count, read), first + count
                self._as_dicts -= count
                yield 1, rows
            else:
                yield 1, in_arrow()

    def _sources_of(self, table: pa.Table, first: int, wanted: list[int]) -> _Parts:
        while first < len(table):
            part = table.slice(first, wanted[0])
            first += len(part)
            yield len(part), (LazyTable(part),)

    def shard_data_sources(self, *args: Any, **kwargs: Any) -> Any:
        return _as(type(self), super().shard_data_sources(*args, **kwargs), self.wanted)  # type: ignore[misc]


class _ArrowRows(_InArrow, _Arrow):  # type: ignore[misc]
    """The rows of tables, without features."""

    def __iter__(self) -> _Examples:
        state, read = self._state_dict, _reader(_Arrow.__iter__)
        shards = streams._split_gen_kwargs(self.kwargs, max_num_jobs=self.num_shards)
        for shard in itertools.islice(shards, state["shard_idx"] if state else 0, None):
            start, seen = state["shard_example_idx"] if state else 0, 0
            for key, table in self.generate_tables_fn(**shard):
                first, seen = max(start - seen, 0), seen + len(table)
                if first < len(table):
                    for count, parts in self._parts_of(key, table, first, read):
                        for part in parts:
                            if state:
                                state["shard_example_idx"] += count
                            yield key, part
            if state:
                state["shard_idx"] += 1
                state["shard_example_idx"] = 0


class _Cursor:
    """A place in tables: the state of a `_Rebatched` of batches of one row, with the state of its tables.

    The state names a place before a table, and the rows since then. While the first row of a table is given, it is the
    place before the last table, so that rows are counted from there; afterwards, and with further rows, that before
    this one.
    """

    def __init__(self, rebatched: Any) -> None:
        self._state, self._tables = rebatched._state_dict, rebatched.ex_iterable
        self._row = self._since = 0  # rows of this table, and since the place
        self._left, self._place = 0, None  # rows to pass over, and the place before this table
        if self._state:
            # `previous_state` is the state before the current table; the counter is the rows since.
            if self._state["previous_state"]:
                self._tables.load_state_dict(self._state["previous_state"])
            self._left = self._state["num_chunks_since_previous_state"]
            self._state["previous_state"] = self._place = self._tables.state_dict()

    def tables(self) -> Iterator[tuple[Any, pa.Table, int]]:
        """The key of each table, the table, and the first row to give."""
        for key, table in self._tables.iter_arrow():
            self._row = min(self._left, len(table))
            self._left, self._since = self._left - self._row, self._since + self._row
            yield key, table, self._row
            if self._state:
                self._place = self._tables.state_dict()

    def pass_on(self, count: int) -> None:
        """So many rows are given."""
        if count > 1:
            self.settle()
        self._row, self._since = self._row + count, self._since + count
        if self._state:
            self._state["batch_idx"] += count
            self._state["num_chunks_since_previous_state"] = self._since

    def settle(self) -> None:
        """The rows have been given, and another one is asked for."""
        self._since = self._row
        if self._state:
            self._state["previous_state"], self._state["num_chunks_since_previous_state"] = self._place, self._row


class _FormattedRows(_InArrow, _Formatted):  # type: ignore[misc]
    """The rows of tables, cast to features."""

    def __iter__(self) -> _Examples:
        cursor, read = _Cursor(self.ex_iterable), _reader(lambda tables: _Formatted.__iter__(self._over(tables)), 1)
        schema = self.features.arrow_schema if self.features else None
        self._decodes = any(map(require_decoding, (self.features or {}).values()))
        for key, table, first in cursor.tables():
            for count, parts in self._cast_parts_of(key, table, first, schema, read):
                for part in parts:
                    cursor.pass_on(count)
                    yield str(key), part
                    cursor.settle()

    def _cast_parts_of(self, key: Any, table: pa.Table, first: int, schema: pa.Schema | None, read: _Read) -> _Parts:
        if first == len(table):
            return ()
        if table.schema != schema:
            if len(table) == 1 and self.wanted is None:
                return ((1, read(key, table)),)
            try:
                _, table = next(_Formatted._iter_arrow(self._over(_Arrow(lambda: iter([(key, table)]), {}))))
            except Exception:  # of one of its rows: `datasets` raises it when that row is read
                return ((1, read(key, table.slice(first))),)
        return self._parts_of(key, table, first, read)

    def _over(self, tables: Any) -> Any:
        examples = _as(_Formatted, self)
        examples.ex_iterable = tables
        return examples


# States name the class that they are of.
_ArrowRows.__name__, _FormattedRows.__name__ = _Arrow.__name__, _Formatted.__name__


def _as(cls: type, examples: Any, wanted: list[int] | None = None) -> Any:
    """A copy that shares its state, of another class."""
    twin = copy.copy(examples)
    twin.__class__ = cls
    twin.wanted, twin._reads = wanted, Reads()
    return twin


def in_arrow(examples: Any, wanted: list[int] | None = None) -> Any:
    """Examples whose rows stay in Arrow where they can; `wanted`: how many may come as one `LazyTable`, in a list."""
    if type(examples) is _Formatted:
        inner = examples.ex_iterable
        plain = not examples.formatting and type(inner) is _Rebatched and inner.batch_size == 1
        plain = plain and inner.ex_iterable.iter_arrow
        crops = plain and inner._state_dict and inner._state_dict["cropped_chunk_length"]
        typed = plain and inner.is_typed and inner.features != examples.features
        return _as(_FormattedRows, examples, wanted) if plain and not crops and not typed and _are_equal() else examples
    passing = None if wanted is None else _passing(examples, _NOT_COUNTING, wanted)
    passing = _passing(examples, _PASSING) if passing is None else passing
    return passing if passing is not None and _are_equal() else examples


def _passing(examples: Any, through: tuple[str, ...], wanted: list[int] | None = None) -> Any:
    """The same examples, with rows in Arrow; None where something else than `through` is given them."""
    if type(examples) is _Arrow:
        return _as(_ArrowRows, examples, wanted)
    if type(examples).__name__.removesuffix("ExamplesIterable") not in through:
        return None
    examples = copy.copy(examples)
    for name in _INSIDE & vars(examples).keys():
        inside = getattr(examples, name)
        parts = [_passing(part, through, wanted) for part in (inside if isinstance(inside, list) else [inside])]
        if None in parts:
            return None
        setattr(examples, name, parts if isinstance(inside, list) else parts[0])
    return examples


@functools.cache
def _are_equal() -> bool:
    """True if rows, keys and states are those of the installed `datasets`, tried on a few tables."""
    sizes = _SMALLEST + 1, 0, 1, 2
    tables = [[pa.table({"a": [[at, row] for row in range(size)]}) for size in sizes] for at in range(2)]
    features_of_tables = datasets.Features.from_arrow_schema(tables[0][0].schema)
    cast_features = datasets.Features({"a": [datasets.Value("int32")], "b": datasets.Value("string")})

    def make(shards: list[int]) -> Iterator[Any]:
        for shard in shards:
            yield from enumerate(tables[shard])

    def examples_of(cls: type, features: Any, wanted: list[int] | None = None) -> Any:
        inner = _Arrow(make, {"shards": [0, 1]})
        examples = inner if features is None else _Formatted(_Rebatched(inner, batch_size=1), None, features, {})
        examples = _as(cls, examples, wanted)
        examples._init_state_dict()
        return examples

    def run(cls: type, features: Any, state: Any, wanted: list[int] | None = None) -> list[Any]:
        examples = examples_of(cls, features, wanted)
        if state is not None:
            examples.load_state_dict(state)
        outcome: list[Any] = []
        for key, part in examples:
            rows = part.arrow.to_pylist() if type(part) is LazyTable else [dict(part)]
            outcome += [(key, row, None) for row in rows[:-1]] + [(key, rows[-1], examples.state_dict())]
        return [*outcome, (None, None, examples.state_dict())]

    try:
        for features in (None, features_of_tables, cast_features):
            ours, theirs = (_ArrowRows, _Arrow) if features is None else (_FormattedRows, _Formatted)
            for *_, state in [(None, None, None), *run(theirs, features, None)[:-1:9]]:
                rows, parts = run(theirs, features, state), run(ours, features, state, [4])
                parts = [(*part[:2], part[2] or row[2]) for part, row in zip(parts, rows, strict=True)]
                if rows != parts or rows != run(ours, features, state):
                    return False
        # Not an `IterableDataset`, whose making goes through what `patch_datasets` puts in place.
        dataset: Any = SimpleNamespace(features=features_of_tables, _formatting=None)
        dataset._prepare_ex_iterable_for_iteration = lambda: examples_of(_ArrowRows, None, [4])
        return all(type(part) is LazyTable for part in datasets.IterableDataset.__iter__(dataset))  # given as they are
    except Exception:  # an interface of another shape: `datasets` reads the rows
        return False
