"""The rows of a `datasets.IterableDataset` where they lie in Arrow, with the order and the states of `datasets`."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
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
# Of these, those that do not count them, so that a `Source` of several passes too.
_NOT_COUNTING = ("RebatchedArrow", "Repeat", "VerticallyConcatenatedMultiSources")
_INSIDE = {"ex_iterable", "ex_iterables", "_interleaved"}  # where these hold what gives it
_Arrow: Any = streams.ArrowExamplesIterable
_Rebatched: Any = streams.RebatchedArrowExamplesIterable
_Formatted: Any = getattr(streams, "FormattedExamplesIterable", type("None", (_Rebatched,), {}))  # absent before 3.1


def _one(key: Any, table: pa.Table) -> Any:
    return _Arrow(lambda: iter([(key, table)]), {})


class _InArrow:
    """Gives rows of tables that stay in Arrow."""

    wanted: list[int] | None = None  # how many rows come next as one `Source`, at most; None: rows come one by one

    def _parts_of(self, key: Any, table: pa.Table, first: int) -> Iterator[tuple[int, Any]]:
        """The rows of a table from `first` on, several at once or one by one, and how many rows each part is."""
        names, wanted = table.column_names, self.wanted
        plain = all(map(is_plain_type, table.schema.types)) and len(set(names)) == len(names)
        if plain and wanted is not None:
            while first < len(table):
                part = table.slice(first, wanted[0])
                first += len(part)
                yield len(part), Source(part)
        elif plain and len(table) >= _SMALLEST:
            yield from zip(itertools.repeat(1), Source(table).rows(range(first, len(table))))
        else:
            yield from ((1, row) for _, row in self._read(key, table.slice(first)))

    def _read(self, key: Any, table: pa.Table) -> _Examples:
        """The rows of one table, as `datasets` reads them."""
        raise NotImplementedError

    def shard_data_sources(self, *args: Any, **kwargs: Any) -> Any:
        return _as(type(self), super().shard_data_sources(*args, **kwargs), self.wanted)  # type: ignore[misc]


class _ArrowRows(_InArrow, _Arrow):  # type: ignore[misc]
    """The rows of tables, without features."""

    def __iter__(self) -> _Examples:
        state = self._state_dict
        shards = streams._split_gen_kwargs(self.kwargs, max_num_jobs=self.num_shards)
        for shard in itertools.islice(shards, state["shard_idx"] if state else 0, None):
            start, seen = state["shard_example_idx"] if state else 0, 0
            for key, table in self.generate_tables_fn(**shard):
                first, seen = max(start - seen, 0), seen + len(table)
                if first < len(table):
                    for count, part in self._parts_of(key, table, first):
                        if state:
                            state["shard_example_idx"] += count
                        yield key, part
            if state:
                state["shard_idx"] += 1
                state["shard_example_idx"] = 0

    def _read(self, key: Any, table: pa.Table) -> _Examples:
        return iter(_one(key, table))


class _FormattedRows(_InArrow, _Formatted):  # type: ignore[misc]
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
            start, counted, number = start - first, counted + first, first
            for count, part in self._cast_parts_of(key, table, first):
                number += count
                counted = counted + 1 if count == 1 else number
                if state:
                    state["batch_idx"] += count
                    state["num_chunks_since_previous_state"] = counted
                    if count > 1:
                        state["previous_state"] = before
                yield str(key), part
                counted = number
                if state:
                    state["previous_state"] = before
                    state["num_chunks_since_previous_state"] = number
            if state:
                before = tables.state_dict()

    def _cast_parts_of(self, key: Any, table: pa.Table, first: int) -> Iterator[tuple[int, Any]]:
        if first == len(table):
            return iter(())
        try:
            cast = next(_Formatted._iter_arrow(self._of(key, table)))[1]
        except Exception:  # of one of its rows: `datasets` raises it when that row is read
            return ((1, row) for at in range(first, len(table)) for _, row in self._read(key, table.slice(at, 1)))
        return self._parts_of(key, cast, first)

    def _read(self, key: Any, table: pa.Table) -> _Examples:
        return _Formatted.__iter__(self._of(key, table))  # type: ignore[no-any-return]

    def _of(self, key: Any, table: pa.Table) -> Any:
        one = _as(_Formatted, self)
        one.ex_iterable = _one(key, table)
        return one


# States name the class that they are of.
_ArrowRows.__name__, _FormattedRows.__name__ = _Arrow.__name__, _Formatted.__name__


def _as(cls: type, examples: Any, wanted: list[int] | None = None) -> Any:
    """A copy that shares its state, of another class."""
    made = copy.copy(examples)
    made.__class__ = cls
    made.wanted = wanted
    return made


def in_arrow(examples: Any, wanted: list[int] | None = None) -> Any:
    """Examples as `IterableDataset` iterates over them, with rows that stay in Arrow where they can.

    With `wanted`, a list that holds one number, an example may be a `Source` that is at most so many rows.
    """
    if type(examples) is _Formatted:
        inner = examples.ex_iterable
        plain = not examples.formatting and type(inner) is _Rebatched and inner.batch_size == 1
        plain = plain and inner.ex_iterable.iter_arrow
        crops = plain and inner._state_dict and inner._state_dict["cropped_chunk_length"]
        typed = plain and inner.is_typed and inner.features != examples.features
        return _as(_FormattedRows, examples, wanted) if plain and not crops and not typed and _are_equal() else examples
    found = None if wanted is None else _passing(examples, _NOT_COUNTING, wanted)
    found = _passing(examples, _PASSING) if found is None else found
    return found if found is not None and _are_equal() else examples


def _passing(examples: Any, through: tuple[str, ...], wanted: list[int] | None = None) -> Any:
    """The same examples, with rows in Arrow; None where something else than `through` is given them."""
    if type(examples) is _Arrow:
        return _as(_ArrowRows, examples, wanted)
    if type(examples).__name__.removesuffix("ExamplesIterable") not in through:
        return None
    examples = copy.copy(examples)
    for name in _INSIDE & vars(examples).keys():
        inside = getattr(examples, name)
        found = [_passing(one, through, wanted) for one in (inside if isinstance(inside, list) else [inside])]
        if None in found:
            return None
        setattr(examples, name, found if isinstance(inside, list) else found[0])
    return examples


@functools.cache
def _are_equal() -> bool:
    """Whether rows, keys and states are those of the installed `datasets`, tried on a few tables."""
    tables = [[pa.table({"a": [[at, row] for row in range(size)]}) for size in (9, 0, 8)] for at in range(2)]
    features = datasets.Features({"a": [datasets.Value("int32")], "b": datasets.Value("string")})

    def make(shards: list[int]) -> Iterator[Any]:
        for shard in shards:
            yield from enumerate(tables[shard])

    def examples_of(cls: type, wanted: list[int] | None = None) -> Any:
        inner = _Arrow(make, {"shards": [0, 1]})
        examples = inner if issubclass(cls, _Arrow) else _Formatted(_Rebatched(inner, batch_size=1), None, features, {})
        examples = _as(cls, examples, wanted)
        examples._init_state_dict()
        return examples

    def run(cls: type, state: Any, wanted: list[int] | None = None) -> list[Any]:
        examples = examples_of(cls, wanted)
        if state is not None:
            examples.load_state_dict(state)
        found: list[Any] = []
        for key, part in examples:
            rows = part.arrow.to_pylist() if type(part) is Source else [dict(part)]
            found += [(key, row, None) for row in rows[:-1]] + [(key, rows[-1], examples.state_dict())]
        return [*found, (None, None, examples.state_dict())]

    try:
        for ours, theirs in ((_ArrowRows, _Arrow), (_FormattedRows, _Formatted)):
            for *_, state in [(None, None, None), *run(theirs, None)[:-1:5]]:
                rows = run(theirs, state)
                parts = [(*one[:2], one[2] or row[2]) for one, row in zip(run(ours, state, [4]), rows, strict=True)]
                if rows != parts or rows != run(ours, state):
                    return False
        # Not an `IterableDataset`, whose making goes through what `patch_datasets` puts in place.
        dataset: Any = SimpleNamespace(features=features, _formatting=None)
        dataset._prepare_ex_iterable_for_iteration = lambda: examples_of(_ArrowRows, [4])
        return all(type(part) is Source for part in datasets.IterableDataset.__iter__(dataset))  # given as they are
    except Exception:  # an interface of another shape: `datasets` reads the rows
        return False
