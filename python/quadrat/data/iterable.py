"""The rows of a `datasets.IterableDataset` where they lie in Arrow, with the order and the states of `datasets`."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterator
from typing import Any

from quadrat.data.stored import is_plain_type
from quadrat.input.lazy_row import Source
from quadrat.support.extras import needs

with needs("quadrat.data.iterable", "datasets"):
    import datasets
    import pyarrow as pa
    from datasets import iterable_dataset as streams

_SMALLEST = 8  # rows of a table; fewer cost more to open than to read
_Examples = Iterator[tuple[Any, Any]]

# What passes on the rows it is given, one by one.
_PASSING = ("RebatchedArrow", "Skip", "Take", "Step", "Repeat", "BufferShuffled", "InterleavedShards",
            "CyclingMultiSources", "RandomlyCyclingMultiSources", "VerticallyConcatenatedMultiSources")  # fmt: skip
# Where these hold what gives it.
_INSIDE = {"ex_iterable", "ex_iterables", "_interleaved"}
_Arrow: Any = streams.ArrowExamplesIterable
_Rebatched: Any = streams.RebatchedArrowExamplesIterable
_Formatted: Any = getattr(streams, "FormattedExamplesIterable", type("None", (_Rebatched,), {}))  # absent before 3.1


class _OneTable:
    """An examples iterable of one table."""

    is_typed, features = False, None

    def __init__(self, key: Any, table: pa.Table) -> None:
        self._iter_arrow = self.iter_arrow = lambda: iter([(key, table)])


def _rows(key: Any, table: pa.Table, first: int, read: Any) -> Iterator[Any]:
    """The rows of a table from `first` on: in Arrow, or as `read` gives them."""
    names = table.column_names
    if len(table) >= _SMALLEST and all(map(is_plain_type, table.schema.types)) and len(set(names)) == len(names):
        return Source.of(table).rows(range(first, len(table)))
    return (row for _, row in read(key, table.slice(first)))


class _ArrowRows(_Arrow):  # type: ignore[misc]
    """The rows of tables, without features."""

    def __iter__(self) -> _Examples:
        state = self._state_dict
        shards = streams._split_gen_kwargs(self.kwargs, max_num_jobs=self.num_shards)
        for shard in itertools.islice(shards, state["shard_idx"] if state else 0, None):
            start, seen = state["shard_example_idx"] if state else 0, 0
            for key, table in self.generate_tables_fn(**shard):
                first, seen = max(start - seen, 0), seen + len(table)
                if first < len(table):
                    for row in _rows(key, table, first, self._read):
                        if state:
                            state["shard_example_idx"] += 1
                        yield key, row
            if state:
                state["shard_idx"] += 1
                state["shard_example_idx"] = 0

    def _read(self, key: Any, table: pa.Table) -> _Examples:
        """The rows of one table, as `datasets` reads them."""
        return iter(_Arrow(lambda: iter([(key, table)]), {}))

    def shard_data_sources(self, *args: Any, **kwargs: Any) -> Any:
        return _as(_ArrowRows, super().shard_data_sources(*args, **kwargs))


class _FormattedRows(_Formatted):  # type: ignore[misc]
    """The rows of tables, cast to features, which `datasets` takes one by one from a `RebatchedArrowExamplesIterable`.

    The state of that names a place before a table, and how many rows were given since.
    """

    def __iter__(self) -> _Examples:
        state, tables = self.ex_iterable._state_dict, self.ex_iterable.ex_iterable
        given, before = 0, None
        if state:
            if state["previous_state"]:
                tables.load_state_dict(state["previous_state"])
            given = state["num_chunks_since_previous_state"]
            state["previous_state"] = before = tables.state_dict()
        start, counted = given, 0
        for key, table in tables.iter_arrow():
            first = min(start, len(table))
            start, counted = start - first, counted + first
            for number, row in enumerate(self._rows_of(key, table, first), first + 1):
                counted += 1
                if state:
                    state["batch_idx"] += 1
                    state["num_chunks_since_previous_state"] = counted
                yield str(key), row
                counted = number
                if state:
                    state["previous_state"] = before
                    state["num_chunks_since_previous_state"] = number
            if state:
                before = tables.state_dict()

    def _rows_of(self, key: Any, table: pa.Table, first: int) -> Iterator[Any]:
        if first == len(table):
            return iter(())
        try:
            cast = next(_Formatted._iter_arrow(self._of(key, table)))[1]
        except Exception:  # of one of its rows: `datasets` raises it when that row is read
            return (row for at in range(first, len(table)) for _, row in self._read(key, table.slice(at, 1)))
        return _rows(key, cast, first, self._read)

    def _read(self, key: Any, table: pa.Table) -> _Examples:
        """The rows of one table, as `datasets` reads them."""
        return _Formatted.__iter__(self._of(key, table))  # type: ignore[no-any-return]

    def _of(self, key: Any, table: pa.Table) -> Any:
        one = _as(_Formatted, self)
        one.ex_iterable = _OneTable(key, table)
        return one

    def shard_data_sources(self, *args: Any, **kwargs: Any) -> Any:
        return _as(_FormattedRows, super().shard_data_sources(*args, **kwargs))


# States name the class that they are of.
_ArrowRows.__name__, _FormattedRows.__name__ = _Arrow.__name__, _Formatted.__name__


def _as(cls: type, examples: Any) -> Any:
    """A copy that shares its state, of another class."""
    made = copy.copy(examples)
    made.__class__ = cls
    return made


def in_arrow(examples: Any) -> Any:
    """Examples as `IterableDataset` iterates over them, with rows that stay in Arrow where they can."""
    if type(examples) is _Formatted:
        inner = examples.ex_iterable
        plain = (
            not examples.formatting
            and type(inner) is _Rebatched
            and inner.ex_iterable.iter_arrow
            and inner.batch_size == 1
        )
        crops = plain and inner._state_dict and inner._state_dict["cropped_chunk_length"]
        typed = plain and inner.is_typed and inner.features != examples.features
        return _as(_FormattedRows, examples) if plain and not crops and not typed and _are_equal() else examples
    found = _passing(examples)
    return found if found is not None and _are_equal() else examples


def _passing(examples: Any) -> Any:
    """The same examples, with rows in Arrow; None where something reads them."""
    if type(examples) is _Arrow:
        return _as(_ArrowRows, examples)
    if type(examples).__name__.removesuffix("ExamplesIterable") not in _PASSING:
        return None
    examples = copy.copy(examples)
    for name in _INSIDE & vars(examples).keys():
        inside = getattr(examples, name)
        found = list(map(_passing, inside if isinstance(inside, list) else [inside]))
        if None in found:
            return None
        setattr(examples, name, found if isinstance(inside, list) else found[0])
    return examples


@functools.cache
def _are_equal() -> bool:
    """Whether rows, keys and states are those of the installed `datasets`, tried on a few tables."""
    tables = [[pa.table({"a": [[at, row] for row in range(size)]}) for size in (9, 0, 8)] for at in range(2)]

    def make(shards: list[int]) -> Iterator[Any]:
        for shard in shards:
            yield from enumerate(tables[shard])

    features = datasets.Features({"a": [datasets.Value("int32")], "b": datasets.Value("string")})

    def outer(cls: type | None) -> Any:
        inner = _Arrow(make, {"shards": [0, 1]})
        if cls is _ArrowRows:
            return _as(_ArrowRows, inner)
        if cls is None:
            return inner
        examples = _Formatted(_Rebatched(inner, batch_size=1), None, features, {})
        return _as(cls, examples)

    def run(cls: type | None, state: Any) -> list[Any]:
        examples = outer(cls)
        examples._init_state_dict()
        if state is not None:
            examples.load_state_dict(state)
        found = [(key, dict(row), examples.state_dict()) for key, row in examples]
        return [*found, examples.state_dict()]

    try:
        for ours, theirs in ((_ArrowRows, None), (_FormattedRows, _Formatted)):
            expected = run(theirs, None)
            if run(ours, None) != expected:
                return False
            for *_, state in expected[:-1:5]:
                if run(ours, state) != run(theirs, state):
                    return False
    except Exception:  # an interface of another shape: `datasets` reads the rows
        return False
    return True
