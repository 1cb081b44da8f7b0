"""Code that reads the rows of a stream under patch_datasets: values of all types, and how many calls they take."""

from __future__ import annotations

import sys
from typing import Any

import datasets
import pyarrow as pa
import pytest
from datasets import iterable_dataset

import quadrat
from quadrat.data import iterable
from quadrat.input.items import LazyRow
from support.streams import outcome_of

IS_NEW = hasattr(iterable_dataset, "InterleavedShardsExamplesIterable")


def tables_of(table: pa.Table, size: int, features: Any = None) -> Any:
    """A stream of tables of so many rows."""
    parts = [(at, table.slice(at, size)) for at in range(0, len(table), size)]
    info = datasets.DatasetInfo(features=features)
    return datasets.IterableDataset(
        iterable_dataset.ArrowExamplesIterable(lambda numbers: iter(parts), {"numbers": [0]}), info=info
    )


TYPES = {
    "struct": pa.array([{"x": row, "y": [row]} for row in range(70)]),
    "binary": pa.array([b"%d" % row for row in range(70)]),
    "time": pa.array(range(70), pa.timestamp("s")),
    "decimal": pa.array(range(70)).cast(pa.decimal128(21, 2)),
    "words": pa.array(["a", "b"] * 35).dictionary_encode(),
    "nothing": pa.nulls(70),
    "matrix": datasets.Dataset.from_dict(
        {"a": [None if row == 66 else [[row, 1]] for row in range(70)]},
        features=datasets.Features({"a": datasets.Array2D((1, 2), "int64")}),
    )
    .data.column("a")
    .combine_chunks(),
    "not UTF-8": pa.array([b"a"] * 68 + [b"\xff", b"a"]).view(pa.string()),
    "no time": pa.array([0] * 65 + [1 << 62] * 5, pa.timestamp("s")),
}


@pytest.mark.parametrize("size", [1, 7, 70])
@pytest.mark.parametrize("column", TYPES.values(), ids=TYPES)
def test_values_of_any_type_are_those_of_datasets(column, size):
    table = pa.table({"a": column, "b": list(range(len(column)))})
    for features in (None, datasets.Features.from_arrow_schema(table.schema)):
        dataset = tables_of(table, size, features)
        expected = outcome_of(dataset)
        with quadrat.data.patch_datasets():
            assert outcome_of(dataset) == expected


def test_a_row_is_decoded_when_it_comes(monkeypatch):
    pytest.importorskip("PIL", reason="datasets needs Pillow for images")
    decoded = []
    monkeypatch.setattr(datasets.Image, "decode_example", lambda _, value, **options: decoded.append(value) or value)
    features = datasets.Features({"a": datasets.Image()})
    dataset = tables_of(pa.table({"a": [{"bytes": b"a", "path": str(row)} for row in range(20)]}), 20, features)
    next(iter(dataset))
    expected, _ = len(decoded), decoded.clear()
    with quadrat.data.patch_datasets():
        next(iter(dataset))
    assert len(decoded) == expected


def test_rows_that_others_read_come_as_dicts():
    """All but the first of them; where nobody reads them, all stay in Arrow. The next pass begins anew."""
    table = pa.table({"a": range(1000)})
    for features in (None, datasets.Features.from_arrow_schema(table.schema)):
        dataset = tables_of(table, 500, features)
        with quadrat.data.patch_datasets():
            assert [type(row) for row in dataset].count(LazyRow) == (1000 if iterable._are_equal() else 0)
            assert [(type(row), row["a"])[0] for row in dataset].count(LazyRow) <= 5
            assert [type(row) for row in dataset].count(LazyRow) == (1000 if iterable._are_equal() else 0)


def calls_of(dataset: Any) -> int:
    """How many functions are called in this thread while somebody reads each row."""
    events = []
    sys.setprofile(lambda frame, event, argument: events.append(event) if event.endswith("call") else None)
    try:
        for row in dataset:
            row["a"]
    finally:
        sys.setprofile(None)
    return len(events)


@pytest.mark.skipif(not IS_NEW, reason="this version of datasets reads rows in another way")
@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("size", [1, 3, 8, 16, 64, 0])
@pytest.mark.parametrize("name", ["list", "struct"])
def test_reading_rows_takes_no_more_calls_than_without(size, typed, name):
    """Size 0: interleaved, one row of each."""
    table = pa.table({"a": [[1, 2]] * 256 if name == "list" else [{"x": 1}] * 256, "b": ["text"] * 256})
    dataset = tables_of(table, size or 64, datasets.Features.from_arrow_schema(table.schema) if typed else None)
    dataset = dataset if size else datasets.interleave_datasets([dataset] * 2)
    calls_of(dataset)
    expected = calls_of(dataset)
    with quadrat.data.patch_datasets():
        calls_of(dataset)
        assert calls_of(dataset) <= expected
