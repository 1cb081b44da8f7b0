"""patch_datasets and a `datasets.IterableDataset`: rows, orders and states as without it, and what a lazy row is."""

from __future__ import annotations

import contextlib
import copy
import json
import operator
import pickle
import types
from collections.abc import Mapping
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import iterable_dataset
from datasets.distributed import split_dataset_by_node
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, default_collate

import quadrat
from quadrat.data import iterable
from quadrat.input.items import LazyRow, LazyTable
from quadrat.input.rows import Rows
from support.strategies import make_tokenizer
from support.streams import outcome_of
from support.threads import together

ROWS = 60
IS_NEW = hasattr(iterable_dataset, "InterleavedShardsExamplesIterable")
COLUMNS = {
    "input_ids": [[row] * (1 + row * 7 % 11) for row in range(ROWS)],
    "score": [row / 3 for row in range(ROWS)],
    "text": [None if row % 9 == 4 else f"text {row}" for row in range(ROWS)],
    "flags": [[[row % 2 == 0], []] for row in range(ROWS)],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four files of fifteen rows, each in groups of ten."""
    path = tmp_path_factory.mktemp("files")
    table = pa.table(COLUMNS)
    for shard in range(4):
        pq.write_table(table.slice(15 * shard, 15), path / f"{shard}.parquet", row_group_size=10)
    return path


def from_tables(folder, features: bool) -> Any:
    def tables(files):
        for file in files:
            for number, batch in enumerate(pq.ParquetFile(file).iter_batches()):
                yield f"{file}_{number}", pa.Table.from_batches([batch])

    files = sorted(map(str, folder.glob("*.parquet")))
    examples = iterable_dataset.ArrowExamplesIterable(tables, {"files": files})
    info = datasets.DatasetInfo(features=datasets.Features.from_arrow_schema(pa.table(COLUMNS).schema))
    return datasets.IterableDataset(examples, info=info if features else None)


def widened(dataset: Any) -> Any:
    """Each row cast to other types, and a column that is not there."""
    features = dataset.features and dict(dataset.features)
    if features is None:
        return dataset
    return dataset.cast(datasets.Features(features | {"score": datasets.Value("float32")}))


STEPS = {
    "shuffle": lambda dataset: dataset.shuffle(seed=3, buffer_size=7),
    "shuffle all": lambda dataset: dataset.shuffle(seed=4, buffer_size=100),
    "take": lambda dataset: dataset.take(33),
    "skip": lambda dataset: dataset.skip(8),
    "shard": lambda dataset: dataset.shard(2, 1),
    "node": lambda dataset: split_dataset_by_node(dataset, 1, 2),
    "node of three": lambda dataset: split_dataset_by_node(dataset, 2, 3),
    "repeat": lambda dataset: dataset.repeat(2),
    "interleave": lambda dataset: datasets.interleave_datasets([dataset, dataset.skip(5)]),
    "interleave at random": lambda dataset: datasets.interleave_datasets(
        [dataset, dataset.take(20)], probabilities=[0.3, 0.7], seed=1, stopping_strategy="all_exhausted"
    ),
    "concatenate": lambda dataset: datasets.concatenate_datasets([dataset.take(9), dataset]),
    "map": lambda dataset: dataset.map(lambda row: {"size": len(row["input_ids"])}),
    "map batches": lambda dataset: dataset.map(lambda rows: {"twice": rows["score"]}, batched=True, batch_size=7),
    "filter": lambda dataset: dataset.filter(lambda row: len(row["input_ids"]) > 3),
    "select": lambda dataset: dataset.select_columns(["input_ids", "text"]),
    "rename": lambda dataset: dataset.rename_column("score", "rating"),
    "cast": widened,
    "epoch": lambda dataset: dataset.set_epoch(2) or dataset,
    "numpy": lambda dataset: dataset.with_format("numpy"),
}


@st.composite
def streams(draw):
    """How to make a stream, always anew."""
    features, shards = draw(st.booleans()), draw(st.sampled_from([1, 3, 4]))
    stored = draw(st.booleans())
    names = draw(st.lists(st.sampled_from(sorted(STEPS)), max_size=3, unique=True))

    def make(folder):
        if stored:
            dataset = datasets.Dataset.from_dict(COLUMNS).to_iterable_dataset(num_shards=shards)
        else:
            dataset = from_tables(folder, features)
        for name in names:
            dataset = STEPS[name](dataset)
        return dataset

    make.__qualname__ = f"{features=} {shards=} {stored=} {names}"
    return make


@pytest.mark.property
@given(make=streams(), stop=st.none() | st.integers(0, 70), states=st.booleans(), data=st.data())
def test_rows_order_and_states_are_those_of_datasets(folder, make, stop, states, data):
    try:
        dataset = make(folder)
    except Exception:  # steps that do not go together
        return
    expected = outcome_of(dataset, stop, states)
    with quadrat.data.patch_datasets():
        assert outcome_of(make(folder), stop, states) == expected
    if not states or not expected or len(expected[-1]) == 2:
        return
    state = data.draw(st.sampled_from([step[2] for step in expected]))
    resumed = make(folder)
    resumed.load_state_dict(copy.deepcopy(state))
    expected = outcome_of(resumed)
    with quadrat.data.patch_datasets():
        resumed = make(folder)
        resumed.load_state_dict(copy.deepcopy(state))
        assert outcome_of(resumed) == expected


def items_of(stream: Any) -> list[Any]:
    """The rows of each item; or the error."""
    items: list[Any] = []
    try:
        items += ([repr({**row}) for row in batch] for batch in stream)
    except Exception as error:
        items.append((type(error), str(error)))
    return items


@pytest.mark.property
@given(make=streams(), window=st.integers(1, 70), taken=st.integers(1, 20))
def test_a_stream_of_batches_has_the_same_rows(folder, make, window, taken):
    """As if `datasets` had read each of them, and after a resume."""
    try:
        make(folder)
    except Exception:  # steps that do not go together
        return

    def read_by_datasets():
        dataset = make(folder)
        dataset.set_epoch(0)
        return iter(dataset)

    def stream_of(dataset: Any) -> Any:
        return quadrat.BatchedStream(dataset, 64, window=window)

    expected = items_of(stream_of(read_by_datasets))
    stream = stream_of(make(folder))
    assert items_of(stream) == expected
    taken = min(taken, len(expected) - 1)
    for _ in zip(range(taken), stream, strict=False):
        pass
    resumed = stream_of(make(folder))
    resumed.load_state_dict(stream.state_dict())
    assert items_of(resumed) == expected[max(taken, 0) :]


@pytest.mark.skipif(not IS_NEW, reason="this version of datasets reads rows in another way")
@pytest.mark.parametrize("features", [True, False])
def test_items_of_a_stream_stay_in_arrow(folder, features):
    dataset = from_tables(folder, features)
    assert iterable._are_equal()
    for stream in (dataset, dataset.repeat(2), dataset.shuffle(seed=1, buffer_size=4)):
        items = list(quadrat.BatchedStream(stream, 64, window=25, columns=["input_ids", "score"]))
        assert set(map(type, items)) == {Rows} if features or stream._ex_iterable.iter_arrow else {list}
        assert all(list(item[0]) == ["input_ids", "score"] for item in items)


@pytest.mark.skipif(not IS_NEW, reason="this version of datasets reads rows in another way")
@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("step", [None, "shuffle all", "take", "node", "concatenate"])
def test_rows_stay_in_arrow(folder, features, step):
    dataset = from_tables(folder, features)
    dataset = dataset if step is None else STEPS[step](dataset)
    assert iterable._are_equal()
    with quadrat.data.patch_datasets():
        assert LazyRow in set(map(type, dataset))
    assert set(map(type, dataset)) == {dict}


def test_what_reads_rows_gets_dicts(folder):
    seen = []
    dataset = from_tables(folder, True).map(lambda row: seen.append(type(row)) or row)
    with quadrat.data.patch_datasets():
        list(dataset)
    assert set(seen) <= {dict, getattr(datasets.formatting.formatting, "LazyRow", dict)}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("features", [True, False])
def test_a_data_loader_makes_the_same_batches(folder, features, workers):
    dataset = from_tables(folder, features).remove_columns(["text", "flags", "score"])
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    expected = list(DataLoader(dataset, 4, num_workers=workers, collate_fn=collator))
    with quadrat.data.patch_datasets():
        quadrat.stats(reset=True)
        batches = list(DataLoader(dataset, 4, num_workers=workers, collate_fn=collator))
        if not workers:
            assert quadrat.stats().fell_back == 0
    for batch, other in zip(batches, expected, strict=True):
        assert type(batch) is type(other)
        assert list(batch) == list(other)
        assert all(batch[name].equal(other[name]) and batch[name].dtype == other[name].dtype for name in batch)


def test_an_error_of_one_row_comes_with_that_row():
    table = pa.table({"a": [1] * 9 + [300, 1]})
    examples = iterable_dataset.ArrowExamplesIterable(lambda numbers: iter([(0, table)]), {"numbers": [0]})
    info = datasets.DatasetInfo(features=datasets.Features({"a": datasets.Value("int8")}))
    dataset = datasets.IterableDataset(examples, info=info)
    expected = outcome_of(dataset)
    with quadrat.data.patch_datasets():
        assert outcome_of(dataset) == expected


def row_of(**columns: Any) -> Any:
    (row,) = LazyTable(pa.table({name: [value] for name, value in columns.items()})).rows([0])
    return row


READS = {
    "[]": lambda row: row["a"],
    "get": lambda row: (row.get("b"), row.get("z"), row.get("z", 3)),
    "items": lambda row: list(row.items()),
    "values": lambda row: list(row.values()),
    "keys": lambda row: (list(row), list(row.keys()), list(reversed(row)), len(row), "a" in row, "z" in row),
    "dict": dict,
    "**": lambda row: {**row},
    "copy": lambda row: (row.copy(), type(row.copy()), copy.copy(row), copy.deepcopy(row), type(copy.copy(row))),
    "pickle": lambda row: (pickle.loads(pickle.dumps(row)), type(pickle.loads(pickle.dumps(row)))),
    "json": json.dumps,
    "repr": repr,
    "==": lambda row: (row == {"a": [1, 2], "b": 0.5}, operator.eq({"a": [1, 2], "b": 0.5}, row), row != {}),
    "|": lambda row: (row | {"c": 1}, {"c": 1} | row),
    "pop": lambda row: (row.pop("a"), dict(row)),
    "popitem": lambda row: (row.popitem(), dict(row)),
    "del": lambda row: (row.__delitem__("b"), dict(row)),
    "set": lambda row: (row.__setitem__("c", 1), dict(row)),
    "setdefault": lambda row: (row.setdefault("a", 0), row.setdefault("d", 0), dict(row)),
    "update": lambda row: (row.update(a=3), dict(row)),
    "|=": lambda row: dict(row.__ior__({"e": 1})),
    "clear": lambda row: (row.clear(), dict(row)),
    "isinstance": lambda row: (isinstance(row, dict), isinstance(row, Mapping)),
    "call": lambda row: types.SimpleNamespace(**row),
    "default_collate": lambda row: {name: str(value) for name, value in default_collate([row, row]).items()},
    "arrow": lambda row: pa.Table.from_pylist([row]).to_pylist(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_row_is_a_dict(read):
    assert read(row_of(a=[1, 2], b=0.5)) == read({"a": [1, 2], "b": 0.5})


def test_rows_are_compared_by_their_values():
    first, same, other = LazyTable(pa.table({"a": [[1, 2], [1, 2], [3]]})).rows([0, 1, 2])
    assert first == same
    assert first != other


def test_edits_are_collated():
    source = LazyTable(pa.table({"input_ids": [[1, 2], [3]]}))
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    rows = list(source.rows([0, 1]))
    assert collator(rows)["input_ids"].tolist() == [[1, 2], [3, 0]]
    rows[1]["input_ids"].append(9)
    rows[0]["input_ids"] = [7, 8]
    assert collator(rows)["input_ids"].tolist() == [[7, 8], [3, 9]]


def test_rows_of_several_tables_make_one_batch():
    tables = [pa.table({"input_ids": [[number, row] for row in range(3)]}) for number in range(3)]
    rows = [row for table in tables for row in LazyTable(table).rows([2, 0])]
    expected = [[0, 2], [0, 0], [1, 2], [1, 0], [2, 2], [2, 0]]
    assert quadrat.DataCollatorWithPadding(make_tokenizer())(rows)["input_ids"].tolist() == expected
    other = next(iter(LazyTable(pa.table({"input_ids": [[5]], "label": [1]})).rows([0])))
    with pytest.raises(KeyError, match="label"):
        quadrat.DataCollatorWithPadding(make_tokenizer())([other, *rows])


def test_code_that_reads_the_memory_of_a_row_finds_no_values():
    row = row_of(a=1)
    assert [type(value).__name__ for value in dict.values(row)] == ["_Unread"]
    with pytest.raises(TypeError):
        int(next(iter(dict.values(row))))


def test_two_threads_read_one_row():
    for _ in range(50):
        row = row_of(a=[1], b=[2])
        together(*[lambda row=row: row["a"].append(0)] * 2)
        assert dict(row) == {"a": [1, 0, 0], "b": [2]}


def test_a_batch_of_rows_in_arrow_and_others():
    rows = list(LazyTable(pa.table({"input_ids": [[1, 2], [3]]})).rows([0, 1]))
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    quadrat.stats(reset=True)
    for features in ([{"input_ids": [4]}, *rows], [*rows, {"input_ids": [4]}], [rows[0], {"input_ids": [4]}, rows[1]]):
        expected = [row["input_ids"] + [0] * (2 - len(row["input_ids"])) for row in map(dict, features)]
        assert collator(features)["input_ids"].tolist() == expected
    assert quadrat.stats().fell_back == 0


def test_undone():
    dataset = datasets.Dataset.from_dict({"a": [1] * 20}).to_iterable_dataset()
    with contextlib.ExitStack() as stack:
        stack.enter_context(quadrat.data.patch_datasets())
        rows = iter(dataset)
        next(rows)
    assert next(rows) == {"a": 1}
    assert set(map(type, dataset)) == {dict}
    np.testing.assert_array_equal([row["a"] for row in dataset], [1] * 20)
