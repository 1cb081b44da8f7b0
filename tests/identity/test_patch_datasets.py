"""patch_datasets: rows as datasets gives them, and the batches that the reference makes of them."""

import contextlib
import datetime
import pickle
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers
from datasets import formatting
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader, Subset

import quadrat
from quadrat.input.rows import Rows
from quadrat.installed.behaviour import flattening_takes_arrays
from support.compare import assert_same_batch, assert_same_outcome, outcome, seeded
from support.samples import CLASSES, batch, make
from support.strategies import make_tokenizer

INTEGERS = st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()])
FLOATS = st.sampled_from([pa.float32(), pa.float64()])
FORMATS = (None, "python", "numpy", "torch")


@st.composite
def tables(draw, rows):
    """Columns that a tokenizer makes, and others, of any Arrow type."""
    lengths = (
        [draw(st.integers(0, 6)) for _ in range(rows)] if draw(st.booleans()) else [draw(st.integers(1, 6))] * rows
    )
    kind, wrap = draw(INTEGERS), draw(st.sampled_from([pa.list_, pa.large_list]))
    numbers = st.integers(0, 100)
    columns = {
        "input_ids": pa.array([draw(st.lists(numbers, min_size=n, max_size=n)) for n in lengths], wrap(kind)),
        "attention_mask": pa.array([[1] * n for n in lengths], wrap(draw(INTEGERS))),
    }
    extra = draw(st.sets(st.sampled_from(["label", "score", "flags", "text", "when", "weights", "nested", "missing"])))
    makers = {
        "label": lambda: pa.array([draw(numbers) for _ in range(rows)], draw(INTEGERS)),
        "score": lambda: pa.array([draw(numbers) / 3 for _ in range(rows)], draw(FLOATS)),
        "flags": lambda: pa.array([[draw(st.booleans()) for _ in range(n)] for n in lengths], pa.list_(pa.bool_())),
        "text": lambda: pa.array(["a", "bb", "ccc"][:rows] + ["d"] * (rows - 3)),
        "when": lambda: pa.array([datetime.datetime(2020, 1, 1 + row) for row in range(rows)]),
        "weights": lambda: pa.array([[0.1] * n for n in lengths], pa.list_(draw(FLOATS))),
        "nested": lambda: pa.array([[[1, 2], [3]]] * rows),
        "missing": lambda: pa.array([None, 1, 2][:rows] + [3] * (rows - 3)),
    }
    return pa.table(columns | {name: makers[name]() for name in sorted(extra)})


@st.composite
def made(draw, formats=FORMATS):
    """A dataset, and rows of it."""
    rows = draw(st.integers(1, 6))
    dataset = datasets.Dataset(draw(tables(rows)))
    how = draw(st.sampled_from(["plain", "select", "concatenated"]))
    if how == "select":
        dataset = dataset.select(draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=8)))
    elif how == "concatenated":
        dataset = datasets.concatenate_datasets([dataset, dataset])
    columns = draw(st.none() | st.sets(st.sampled_from(dataset.column_names), min_size=1).map(sorted))
    chosen = draw(st.sampled_from(formats))
    dataset = dataset.with_format(chosen, columns=columns, output_all_columns=draw(st.booleans()))
    keys = draw(st.lists(st.integers(-len(dataset) - 1, len(dataset)), min_size=1, max_size=6))
    return dataset, keys


def said(result: Any) -> Any:
    """What an outcome says but for rows: the type and words of an error."""
    return (result[0], type(result[1]), str(result[1])) if result[0] == "raised" else result[0]


def assert_same_rows(got: Any, expected: Any) -> None:
    assert len(got) == len(expected)
    for row, other in zip(got, expected, strict=True):
        assert type(row) is dict
        assert list(row) == list(other)
        for name in other:
            assert_same_batch(other[name], row[name], name)


@given(made())
def test_rows_are_what_they_were(case):
    dataset, keys = case
    read = (dataset.__getitems__, *[lambda _, key=key: dataset[key] for key in keys])
    expected, *singly = [outcome(reader, keys) for reader in read]
    with quadrat.data.patch_datasets():
        got, *one_by_one = [outcome(reader, keys) for reader in (dataset.__getitems__, *read[1:])]
    for result, other in zip([got, *one_by_one], [expected, *singly], strict=True):
        assert said(result) == said(other)
    for result, other in zip(one_by_one, singly, strict=True):
        if result[0] == "returned":
            assert_same_rows([result[1]], [other[1]])
    if expected[0] == "raised":
        return
    expected = expected[1]
    names = dataset.format["columns"]
    whole, columns = dataset[:], [list(dataset[name]) for name in names]
    with quadrat.data.patch_datasets():
        got = dataset.__getitems__(keys)
        assert isinstance(got, list)
        assert_same_rows(got[1:], expected[1:])
        assert_same_rows(got, expected)
        assert_same_rows(dataset.__getitems__(keys)[:1], expected[:1])
        assert_same_rows(pickle.loads(pickle.dumps(dataset.__getitems__(keys))), expected)
        assert_same_rows([dataset[:]], [whole])
        for name, values in zip(names, columns, strict=True):
            assert list(map(repr, dataset[name])) == list(map(repr, values))


@given(
    made(),
    st.sampled_from(["DataCollatorWithPadding", "DataCollatorForTokenClassification", "DefaultDataCollator"]),
    st.sampled_from(["pt", "np"]),
)
def test_batches_are_those_of_the_reference(case, name, framework):
    dataset, keys = case
    try:
        rows = dataset.__getitems__(keys)
    except Exception:
        return  # see above
    expected = outcome(lambda features: collate(transformers, name, framework, features), rows)
    with quadrat.data.patch_datasets():
        for _ in range(2):  # the second time of a known kind
            got = outcome(lambda features: collate(quadrat, name, framework, features), dataset.__getitems__(keys))
            assert_same_outcome(expected, got)


def collate(package, name, framework, features):
    if name == "DefaultDataCollator":
        return package.DefaultDataCollator(return_tensors=framework)(features)
    return getattr(package, name)(make_tokenizer(), return_tensors=framework)(features)


@pytest.mark.parametrize("chosen", FORMATS)
@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_collator(name, chosen):
    dataset = datasets.Dataset.from_list(batch(name)).with_format(chosen)
    keys = list(range(len(dataset)))
    # Flattening is that of the newest transformers, which takes arrays.
    older = name == "DataCollatorWithFlattening" and chosen in ("numpy", "torch") and not flattening_takes_arrays()
    outcomes = []
    for package in (quadrat,) if older else (transformers, quadrat):
        outcomes.append(seeded(make(package, name), dataset.__getitems__(keys)))
        with quadrat.data.patch_datasets():
            outcomes.append(seeded(make(package, name), dataset.__getitems__(keys)))
    for result, states in outcomes[1:]:
        assert_same_outcome(outcomes[0][0], result)
        assert states == outcomes[0][1]


def tokens(rows=12):
    lengths = [3 + 7 * row % 5 for row in range(rows)]
    return datasets.Dataset.from_dict(
        {"input_ids": [[3 + row] * n for row, n in enumerate(lengths)], "labels": [row % 3 for row in range(rows)]}
    )


def loaders(dataset):
    """Ways in which training reaches rows."""
    yield DataLoader(dataset, batch_size=4, collate_fn=list)
    yield DataLoader(Subset(dataset, [5, 1, 7, 3]), batch_size=2, collate_fn=list)
    yield DataLoader(ConcatDataset([dataset, dataset]), batch_size=5, collate_fn=list)
    yield DataLoader(dataset.shuffle(seed=1), batch_size=4, collate_fn=list, num_workers=2)
    with contextlib.suppress(NotImplementedError):  # early versions of datasets do not stream with a format
        yield DataLoader(dataset.to_iterable_dataset(num_shards=2), batch_size=4, collate_fn=list)


@pytest.mark.parametrize("chosen", FORMATS)
def test_data_loaders(chosen):
    dataset = tokens().with_format(chosen)
    expected = [list(loader) for loader in loaders(dataset)]
    with quadrat.data.patch_datasets():
        got = [list(loader) for loader in loaders(dataset)]
    for batches, other in zip(got, expected, strict=True):
        assert len(batches) == len(other)
        for rows, others in zip(batches, other, strict=True):
            assert_same_rows(rows, others)


@pytest.mark.parametrize("chosen", FORMATS)
def test_rows_stay_in_arrow_until_somebody_looks(chosen):
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    with quadrat.data.patch_datasets():
        rows = tokens().with_format(chosen).__getitems__([0, 4, 2])
        collator(rows)
        collator(rows)
        assert not rows.handed_out
        rows[1]["input_ids"][0] = 77
        assert collator(rows)["input_ids"][1, 0] == 77
        rows.append({"input_ids": [1], "labels": 1})
        assert collator(rows)["input_ids"].shape[0] == 4


def test_changes_in_place_are_seen():
    dataset = tokens()
    with quadrat.data.patch_datasets():
        before = dataset.__getitems__([0, 1])
        dataset.set_format("torch", columns=["labels"])
        assert [list(row) for row in dataset.__getitems__([0, 1])] == [["labels"]] * 2
        assert isinstance(dataset.__getitems__([0])[0]["labels"], torch.Tensor)
        assert list(dataset[0]) == ["labels"]
        assert isinstance(before[0]["input_ids"], list), "as it was when it was fetched"
        dataset.reset_format()
        assert dataset[0] == {"input_ids": [3, 3, 3], "labels": 0}


def test_errors_are_those_of_datasets():
    dataset, empty = tokens(), tokens().select([])
    lists = [0, 99], [-99], [2**63], [0, -(2**70)], ["a"], [None], []
    others = slice(0, 2), range(2), 0, None, np.array([[0, 1]])
    indices = 2**63, 2**70, 99, -13, True, "nothing"
    calls = (
        *(lambda keys=keys: dataset.__getitems__(keys) for keys in (*lists, *others)),
        *(lambda key=key: dataset[key] for key in indices),
        lambda: empty.__getitems__([0]),
        lambda: tokens().remove_columns(["input_ids", "labels"]).__getitems__([0]),
    )
    expected = [outcome(lambda _, call=call: call(), None) for call in calls]
    with quadrat.data.patch_datasets():
        got = [outcome(lambda _, call=call: call(), None) for call in calls]
    assert list(map(said, got)) == list(map(said, expected))


@pytest.mark.parametrize("chosen", FORMATS)
@pytest.mark.parametrize("wrap", [lambda dataset: dataset, quadrat.ArrowDataset])
@pytest.mark.parametrize("name", ["_getitem", "__getitem__"])
def test_hooks_of_an_instance_are_called(name, wrap, chosen):
    dataset = wrap(tokens().with_format(chosen))
    asked = []

    def hook(key):
        asked.append(key)
        return {"n": [7]} if isinstance(key, list) else {"n": 7}

    setattr(dataset, name, hook)
    with quadrat.data.patch_datasets():
        assert dataset.__getitems__([3]) == [{"n": 7}]
        assert asked == [[3]]
        if name == "_getitem":
            assert dataset[3] == {"n": 7}


@pytest.mark.parametrize("chosen", FORMATS)
def test_code_in_place_of_that_of_datasets_is_called(monkeypatch, chosen):
    """Formatters, and functions that they are called by."""
    dataset = tokens().with_format(chosen)

    class Formatter(formatting._FORMAT_TYPES[dataset._format_type]):
        def format_batch(self, table):
            return {"n": [table.num_rows]}

        def format_row(self, table):
            return {"n": -1}

    with quadrat.data.patch_datasets():
        dataset.__getitems__([0])
        with monkeypatch.context() as patch:
            patch.setitem(formatting._FORMAT_TYPES, dataset._format_type, Formatter)
            assert (dataset.__getitems__([3]), dataset[3]) == ([{"n": 1}], {"n": -1})
        with monkeypatch.context() as patch:
            patch.setattr(formatting._FORMAT_TYPES[dataset._format_type], "format_batch", Formatter.format_batch)
            assert dataset.__getitems__([3]) == [{"n": 1}]
        with monkeypatch.context() as patch:
            patch.setattr(datasets.arrow_dataset, "format_table", lambda *_, **__: {"n": [5]})
            assert (dataset.__getitems__([3]), dataset[3]) == ([{"n": 5}], {"n": [5]})
        assert len(dataset.__getitems__([3])[0]) == 2


@pytest.mark.parametrize("chosen", FORMATS)
def test_rows_that_others_read_again_and_again(chosen):
    """`datasets` reads most of these batches at once, and the first ones stay in Arrow again after those."""
    dataset = tokens().with_format(chosen)
    expected = dataset.__getitems__([0, 4])
    with quadrat.data.patch_datasets():
        for _ in range(80):
            assert_same_rows(dataset.__getitems__([0, 4]), expected)
        assert any(type(dataset.__getitems__([0])) is Rows for _ in range(80))


def test_lazy_rows():
    dataset = tokens().with_format(None, lazy=True)
    expected = type(dataset[1])
    with quadrat.data.patch_datasets():
        assert_same_rows(dataset.__getitems__([1]), tokens().__getitems__([1]))
        assert type(dataset[1]) is expected


@pytest.mark.parametrize("chosen", FORMATS)
def test_rows_one_by_one(chosen):
    """So many that the table is opened, and before."""
    dataset = datasets.concatenate_datasets([tokens(), tokens()]).with_format(chosen).shuffle(seed=0)
    expected = [dataset[row] for row in range(24)]
    with quadrat.data.patch_datasets():
        for _ in range(8):
            assert_same_rows([dataset[row] for row in range(24)], expected)


class Wordy(datasets.Dataset):
    def __getitem__(self, key):
        return {"said": [f"{key}"] * (1 if isinstance(key, int) else len(key))}


def test_others_read_in_their_own_way():
    wordy = Wordy(tokens().data)
    transformed = tokens().with_transform(lambda batch: {"n": [len(ids) for ids in batch["input_ids"]]})
    frames = tokens().with_format("pandas")
    expected = [dataset.__getitems__([1, 2]) for dataset in (wordy, transformed)]
    with quadrat.data.patch_datasets():
        assert [dataset.__getitems__([1, 2]) for dataset in (wordy, transformed)] == expected
        assert wordy[1] == {"said": ["1"]}
        assert type(frames[:]).__name__ == "DataFrame"
        assert type(quadrat.ArrowDataset(tokens()).with_format("torch").__getitems__([0])[0]["input_ids"]) is list


def test_features_that_are_decoded():
    features = datasets.Features({"input_ids": datasets.Array2D((2, 2), "int32"), "label": datasets.ClassLabel(2)})
    dataset = datasets.Dataset.from_dict({"input_ids": [[[1, 2], [3, 4]]] * 3, "label": [0, 1, 0]}, features=features)
    for chosen in FORMATS:
        view = dataset.with_format(chosen)
        expected, row = view.__getitems__([0, 2]), view[1]
        reference = transformers.default_data_collator(view.__getitems__([0, 2]))
        with quadrat.data.patch_datasets():
            assert_same_rows(view.__getitems__([0, 2]), expected)
            assert_same_rows([view[1]], [row])
            assert_same_batch(reference, quadrat.default_data_collator(view.__getitems__([0, 2])))


@pytest.mark.skipif(not hasattr(datasets, "Json"), reason="the installed datasets has no feature of that kind")
def test_json():
    dataset = datasets.Dataset.from_dict(
        {"said": [{"a": 1}, {"b": [2]}]}, features=datasets.Features({"said": datasets.Json()})
    )
    expected = dataset.__getitems__([1, 0])
    with quadrat.data.patch_datasets():
        assert dataset.__getitems__([1, 0]) == expected
        assert dataset[0] == expected[1]
    assert list(quadrat.ArrowDataset(dataset).__getitems__([1, 0])) == expected
