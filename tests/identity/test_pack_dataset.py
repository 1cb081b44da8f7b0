"""pack_dataset == TRL's: rows, order, types, formats and errors; and a plain oracle where TRL is not installed."""

import warnings
from collections import deque
from itertools import pairwise
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import quadrat
from quadrat.batching import packing as module

pytestmark = pytest.mark.same_everywhere

STRATEGIES = ["bfd", "bfd_split", "wrapped"]
STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string())])
TEXTS = [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
KINDS = [pa.int32(), pa.int8(), pa.int64(), pa.uint16(), pa.float16(), pa.float32(), pa.float64(), pa.timestamp("s")]
KINDS += [pa.null(), pa.bool_(), pa.list_(pa.int8()), pa.list_(pa.int8(), 2), STRUCT, *TEXTS]


@pytest.fixture(scope="module")
def trl() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what TRL's dependencies say when they are imported
        return pytest.importorskip("trl.data_utils", reason="TRL, the reference of pack_dataset, is not installed")


@pytest.fixture(autouse=True)
def calm():
    datasets.disable_caching()
    yield
    datasets.enable_caching()


def value_of(kind: pa.DataType, number: int) -> Any:
    """One of several values of this kind, for a number."""
    values = {
        pa.null(): None,
        pa.bool_(): number % 2 == 0,
        STRUCT: {"a": number, "b": str(number)},
        pa.list_(pa.int8()): [number % 100] * (number % 3),
        pa.list_(pa.int8(), 2): [number % 100, 1],
        **dict.fromkeys(TEXTS, str(number % 9)),
    }
    return values.get(kind, number % 100)


def column_of(lengths: list[int | None], kind: pa.DataType, large: bool, nulls: bool) -> pa.Array:
    """Lists of these lengths, null for None; with `nulls` some of the values are null."""
    lists = pa.large_list(kind) if large else pa.list_(kind)
    rows, number = [], 0
    for length in lengths:
        numbers = range(number, number + (length or 0))
        number = numbers.stop
        rows.append(None if length is None else [None if nulls and n % 4 == 1 else value_of(kind, n) for n in numbers])
    return pa.array(rows, lists)


LENGTHS = st.one_of(
    st.lists(st.integers(0, 12), min_size=1, max_size=60),  # many are equal
    st.lists(st.none() | st.integers(0, 60), min_size=1, max_size=40),
    st.lists(st.sampled_from([1, 2, 3, 4, 8, 9, 16]), min_size=30, max_size=120),
)


@st.composite
def tables(draw: Any) -> pa.Table:
    """A table whose columns have lists of the same lengths: a slice, of one chunk or of several."""
    lengths = draw(LENGTHS)
    large = draw(st.booleans())
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    columns = [column_of(lengths, kind, large, draw(st.booleans())) for kind in kinds]
    table = pa.table(columns, names=[f"c{place}" for place in range(len(kinds))])
    cuts = sorted(draw(st.lists(st.integers(0, len(lengths)), max_size=3)))
    first = draw(st.integers(0, len(lengths) - 1))
    parts = [table.slice(at, end - at) for at, end in zip([0, *cuts], [*cuts, len(lengths)], strict=True)]
    return pa.concat_tables(parts).slice(first, draw(st.integers(1, len(lengths))))


def assert_same_table(expected: pa.Table, found: pa.Table) -> None:
    found.validate(full=True)
    assert found.schema == expected.schema
    for expected_column, column in zip(expected.columns, found.columns, strict=True):
        if "dictionary" in str(column.type):  # where lists are cut, the reference drops texts that nothing refers to
            assert column.to_pylist() == expected_column.to_pylist()
        else:
            assert column.equals(expected_column)


@given(table=tables(), seq_length=st.integers(1, 30), overflow=st.sampled_from(["truncate", "split"]))
def test_best_fit(trl, table, seq_length, overflow):
    found = module._pack_bfd(table, seq_length, overflow)
    if any(table.column(0).to_pylist()):
        assert_same_table(trl._pack_bfd(table, seq_length, overflow), found)
    else:  # TRL raises ArrowNotImplementedError
        assert found.num_rows == 0
        assert found.schema.names == [*table.schema.names, "seq_lengths"]


@given(table=tables(), seq_length=st.integers(1, 30) | st.sampled_from([2**31, 2**62]))
def test_wrapped(trl, table, seq_length):
    assert_same_table(trl._pack_wrapped(table, min(seq_length, 2**31)), module._pack_wrapped(table, seq_length))


@pytest.mark.parametrize("overflow", ["truncate", "split"])
@pytest.mark.parametrize("seq_length", [100, 512, 2047, 2048])
def test_many_rows(trl, seq_length, overflow):
    """Rows are sorted another way when there are many, and when their lengths differ much."""
    for scale in (5.0, 0.5):
        lengths = np.random.default_rng(seq_length).lognormal(scale, 1, 3000).astype(int)
        bounds = np.append(0, lengths.cumsum())
        values = pa.array(np.arange(bounds[-1]) % 30_000, pa.int32())
        table = pa.table({"input_ids": pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), values)})
        for part in (table, table.slice(1001, 1000)):
            assert_same_table(trl._pack_bfd(part, seq_length, overflow), module._pack_bfd(part, seq_length, overflow))


def rows_of(seed: int, rows: int = 70) -> datasets.Dataset:
    generator = np.random.default_rng(seed)
    ids = [generator.integers(0, 100, length).tolist() for length in generator.integers(0, 12, rows)]
    return datasets.Dataset.from_dict({"input_ids": ids, "labels": [[float(one) for one in row] for row in ids]})


def row_seen(row: Any) -> Any:
    if isinstance(row, pa.Table):
        return row
    return {name: (type(value), np.asarray(value).dtype, np.asarray(value).tolist()) for name, value in row.items()}


def seen(dataset: Any) -> Any:
    """All there is to see of a dataset: rows as they come by its format, its type, features and format."""
    if isinstance(dataset, dict):
        return type(dataset), {name: seen(split) for name, split in dataset.items()}
    rows = [row_seen(row) for row in dataset]
    if isinstance(dataset, datasets.IterableDataset):
        return type(dataset), dataset.features, dataset._formatting, rows
    return type(dataset), dataset.features, dataset.format, dataset.data.table.schema, rows


def outcome(call: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return "returned", seen(call(*arguments, **options))
    except Exception as error:
        return "raised", type(error), str(error).replace("trl.data_utils", module.__name__)


def with_counts(batch: dict[str, Any]) -> dict[str, Any]:
    """A transform."""
    return {**batch, "count": [len(row) for row in batch["input_ids"]]}


FORMS = {
    "plain": lambda rows: rows,
    "chosen": lambda rows: rows.select([3, 9, 1, 4, 4, 60]),
    "shuffled": lambda rows: rows.shuffle(seed=1),
    "part": lambda rows: rows.select(range(7, 53)),
    "joined": lambda rows: datasets.concatenate_datasets([rows.select(range(9)), rows, rows.shuffle(seed=3)]),
    "numpy": lambda rows: rows.with_format("numpy"),
    "torch": lambda rows: rows.with_format("torch"),
    "columns": lambda rows: rows.with_format("numpy", columns=["input_ids"], dtype="int16"),
    "all columns": lambda rows: rows.with_format("torch", columns=["labels"], output_all_columns=True),
    "arrow": lambda rows: rows.with_format("arrow"),
    "transform": lambda rows: rows.with_transform(with_counts),
    "ArrowDataset": quadrat.ArrowDataset,
    "large": lambda rows: rows.cast(
        datasets.Features({name: datasets.LargeList(rows.features[name].feature) for name in rows.column_names})
    ),
    "splits": lambda rows: datasets.DatasetDict(train=rows, test=rows.select(range(11))),
    "stream": lambda rows: rows.to_iterable_dataset(),
    "stream of shards": lambda rows: rows.to_iterable_dataset(num_shards=3).with_format("numpy"),
    "streams": lambda rows: datasets.IterableDatasetDict(train=rows.to_iterable_dataset()),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("form", FORMS)
def test_datasets(trl, form, strategy):
    given_, copy = FORMS[form](rows_of(0)), FORMS[form](rows_of(0))
    expected = outcome(trl.pack_dataset, given_, 8, strategy)
    assert expected[0] == "returned"
    assert outcome(quadrat.batching.pack_dataset, given_, 8, strategy) == expected
    assert seen(given_) == seen(copy), "the dataset was changed"


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ({"batch_size": 16}, True),
        ({"batch_size": None}, True),
        ({"batch_size": 1, "drop_last_batch": True}, True),
        ({"num_proc": 2, "batch_size": 10}, True),
        ({"remove_columns": ["labels"]}, True),
        ({"remove_columns": ["input_ids", "labels"]}, True),
        ({"keep_in_memory": True, "writer_batch_size": 3, "desc": "packing"}, True),
        ({"batched": False}, False),
        ({"fn_kwargs": {}}, False),
        ({"with_indices": True}, False),
        ({"input_columns": ["input_ids"]}, False),
        ({"no_such_option": 1}, False),
        ({"remove_columns": ["no such column"]}, False),
    ],
    ids=str,
)
def test_options_of_map(trl, options, runs, strategy):
    rows = rows_of(1)
    if options.get("batch_size") == 1:
        rows = rows.filter(lambda row: len(row["input_ids"]) > 0)  # a batch without tokens is an error of TRL's
    expected = outcome(trl.pack_dataset, rows, 8, strategy, dict(options))
    before = dict(options)
    found = outcome(quadrat.batching.pack_dataset, rows, 8, strategy, options)
    assert found == expected
    assert options == before
    assert (expected[0] == "returned") == runs


@pytest.mark.parametrize(
    ("columns", "strategies"),
    [
        ({"text": ["a", "bc"]}, STRATEGIES),
        ({"input_ids": [[1, 2]], "text": ["a"]}, STRATEGIES),
        ({"text": ["a"], "input_ids": [[1, 2]]}, STRATEGIES),
        ({"a": [[1, 2], [3]], "b": [[1], [2, 3]]}, STRATEGIES),
        ({"a": [[1, 2], None], "b": [[1], [2, 3]]}, STRATEGIES),
        ({"a": [1, 2]}, STRATEGIES),
        ({"a": [None, None]}, STRATEGIES),
        ({"a": [[1], [2]], "seq_lengths": [[1], [2]]}, STRATEGIES),
        ({"a": [[1, 2]], "seq_lengths": [[1]]}, STRATEGIES),
        ({"a": [[1]]}, ["best_fit", "", None, "BFD"]),
    ],
)
def test_bad_input(trl, columns, strategies):
    rows = datasets.Dataset.from_dict(columns)
    for strategy in strategies:
        expected = outcome(trl.pack_dataset, rows, 4, strategy)
        assert expected[0] == "raised" or (strategy == "wrapped" and "seq_lengths" in columns)
        assert outcome(quadrat.batching.pack_dataset, rows, 4, strategy) == expected


def test_no_dataset(trl):
    for other in ([[1, 2]], {"input_ids": [[1]]}, None):
        for given_ in (trl.pack_dataset, quadrat.batching.pack_dataset):
            with pytest.raises(AttributeError, match="object has no attribute '_formatting'"):
                given_(other, 4)
    for pack in (trl.pack_dataset, quadrat.batching.pack_dataset):
        with pytest.raises(StopIteration):
            pack(datasets.DatasetDict(), 4)


# From here on without TRL.


def expected_rows(lengths: list[int], seq_length: int, strategy: str) -> list[list[int]]:
    """The tokens of each row that comes out, for rows whose tokens are numbered through; and where rows begin in it."""
    bounds = np.append(0, np.cumsum(lengths)).tolist()
    if strategy == "wrapped":
        return [list(range(at, min(at + seq_length, bounds[-1]))) for at in range(0, bounds[-1], seq_length)]
    pieces = []
    for first, end in pairwise(bounds):
        cuts = range(first, end, seq_length) if strategy == "bfd_split" else range(first, end)[:1]
        pieces += [range(at, min(at + seq_length, end)) for at in cuts]
    packs: list[list[int]] = []
    waiting: dict[int, deque[list[int]]] = {}
    for piece in sorted(pieces, key=len, reverse=True):
        room = min((room for room, queue in waiting.items() if queue and room >= len(piece)), default=None)
        if room is None:
            room, pack = seq_length, []
            packs.append(pack)
        else:
            pack = waiting[room].popleft()
        pack.extend(piece)
        waiting.setdefault(room - len(piece), deque()).append(pack)
    return packs


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(lengths=st.lists(st.integers(0, 30), min_size=1, max_size=60), seq_length=st.integers(1, 25))
@example(lengths=[0, 0], seq_length=3)
def test_as_a_plain_oracle(strategy, lengths, seq_length):
    bounds = np.append(0, np.cumsum(lengths))
    column = pa.LargeListArray.from_arrays(pa.array(bounds), pa.array(range(bounds[-1]), pa.int64()))
    found = quadrat.batching.pack_dataset(datasets.Dataset(pa.table({"input_ids": column})), seq_length, strategy)
    expected = expected_rows(lengths, seq_length, strategy)
    assert [row["input_ids"] for row in found] == expected
    if strategy != "wrapped":
        assert [sum(row["seq_lengths"]) for row in found] == [len(row) for row in expected]
        assert all(length > 0 for row in found for length in row["seq_lengths"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_columns_that_arrow_stores_in_different_ways(strategy):
    """The reference says that their lists have different lengths."""
    rows = [[1, 2, 3], [4, 5], [6] * 6, [7]]
    plain = pa.array(rows, pa.list_(pa.int32()))
    others = [
        pa.array([[0], *rows], pa.list_(pa.int32()))[1:],  # begins elsewhere in its values
        pa.chunked_array([plain[:1], plain[1:]]),
        plain.cast(pa.large_list(pa.int64())),
    ]
    for other in others:
        found = quadrat.batching.pack_dataset(datasets.Dataset(pa.table({"a": plain, "b": other})), 4, strategy)
        assert found["a"][:] == found["b"][:]
        assert len(found) == 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_rows(strategy):
    """The reference says that there is no column `seq_lengths`."""
    rows = rows_of(0).with_format("numpy", columns=["labels"])
    for large in (False, True):
        whole = FORMS["large"](rows) if large else rows
        expected = quadrat.batching.pack_dataset(whole, 8, strategy)
        for empty in (whole.select([]), whole.filter(lambda row: False)):
            splits = quadrat.batching.pack_dataset(datasets.DatasetDict(train=whole, test=empty), 8, strategy)
            for found in (splits["test"], quadrat.batching.pack_dataset(empty, 8, strategy)):
                assert len(found) == 0
                assert found.features == expected.features
                assert found.format == expected.format
            assert seen(splits["train"]) == seen(expected)


def test_batches_without_tokens():
    """The reference raises ArrowNotImplementedError."""
    rows = datasets.Dataset.from_dict({"input_ids": [[], [], [1, 2], []]})
    for strategy in STRATEGIES:
        found = quadrat.batching.pack_dataset(rows, 4, strategy, {"batch_size": 1})
        assert found["input_ids"][:] == [[1, 2]]
        assert len(quadrat.batching.pack_dataset(rows.select([0, 1]), 4, strategy)) == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_null_lists_that_lie_on_values(strategy):
    offsets, values = pa.array([0, 2, 5, 6], pa.int32()), pa.array(range(6), pa.int32())
    whole = pa.ListArray.from_arrays(offsets, values)
    holes = pa.ListArray.from_arrays(offsets, values, mask=pa.array([False, True, False]))
    pack = module._pack_wrapped if strategy == "wrapped" else module._pack_bfd
    for columns in ({"a": holes}, {"a": holes, "b": holes}):
        for column in pack(pa.table(columns), 9).select(list(columns)).columns:
            assert column.to_pylist() == [[0, 1, 5]]
    with pytest.raises(ValueError, match="All columns must have values of the same length"):
        pack(pa.table({"a": whole, "b": holes}), 9)
    if strategy == "wrapped":
        with pytest.raises(ValueError, match="All columns must have values of the same length"):
            pack(pa.table({"a": holes, "b": whole}), 9)
    else:
        assert pack(pa.table({"a": holes, "b": whole}), 9)["b"].to_pylist() == [[0, 1, 5]]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("seq_length", "error", "message"),
    [
        (0, ValueError, "seq_length must be from 1 to"),
        (-1, ValueError, "seq_length must be from 1 to"),
        (2**63, ValueError, "seq_length must be from 1 to"),
        (4.0, TypeError, "seq_length must be an int, not 4.0"),
        ("4", TypeError, "seq_length must be an int, not '4'"),
        (None, TypeError, "seq_length must be an int, not None"),
    ],
)
def test_bad_lengths(strategy, seq_length, error, message):
    with pytest.raises(error, match=message):
        quadrat.batching.pack_dataset(rows_of(2), seq_length, strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_long_rows_of_the_result(strategy):
    rows = rows_of(3)
    found = quadrat.batching.pack_dataset(rows, np.int64(2**40), strategy)
    assert [len(row["input_ids"]) for row in found] == [sum(map(len, rows["input_ids"]))]


def test_map_finds_what_it_made(tmp_path, monkeypatch):
    datasets.enable_caching()
    rows_of(4).save_to_disk(tmp_path / "rows")
    rows = datasets.load_from_disk(tmp_path / "rows")
    first = quadrat.batching.pack_dataset(rows, 8)
    monkeypatch.setattr(module, "packed", None)
    again = quadrat.batching.pack_dataset(rows, 8)
    assert again[:] == first[:]
    with pytest.raises(TypeError):
        quadrat.batching.pack_dataset(rows, 9)
