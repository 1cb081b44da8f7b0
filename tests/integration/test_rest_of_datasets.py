"""With everything patched, what else `datasets` does is what it was: map, fingerprints, caches, formats, files."""

import copy
import functools
import pickle
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from datasets.fingerprint import Hasher

from support import standins
from support.compare import frozen, outcome
from support.patched import assert_unchanged, everything_patched, unchanged
from support.standins import TEXTS

TOKENIZER = standins.encoder_tokenizer()


def texts() -> datasets.Dataset:
    """Texts, numbers, lists of them, a class, what is missing and what is nested."""
    features = {
        "text": datasets.Value("string"),
        "number": datasets.Value("int32"),
        "score": datasets.Value("float32"),
        "words": datasets.Sequence(datasets.Value("int64")),
        "label": datasets.ClassLabel(names=["a", "b", "c"]),
        "missing": datasets.Value("int64"),
        "inner": {"one": datasets.Value("int8"), "two": datasets.Value("string")},
        "square": datasets.Array2D((2, 2), "float32"),
    }
    rows = range(len(TEXTS))
    columns = {
        "text": TEXTS,
        "number": list(rows),
        "score": [row / 4 for row in rows],
        "words": [list(range(row % 4)) for row in rows],
        "label": [row % 3 for row in rows],
        "missing": [None if row % 2 else row for row in rows],
        "inner": [{"one": row, "two": "x" * row} for row in rows],
        "square": [[[row, 1], [2, 3]] for row in rows],
    }
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def tokens() -> datasets.Dataset:
    return texts().map(lambda row: dict(TOKENIZER(row["text"])), remove_columns=["square", "inner", "missing"])


def seen(dataset: Any) -> Any:
    """Rows, columns, features and fingerprint."""
    rows = [dataset[number] for number in range(len(dataset))]
    return frozen([rows, dataset.column_names, repr(dataset.features), dataset._fingerprint, dataset.format])


def padded(batch):
    return dict(TOKENIZER(batch["text"], padding=True, return_tensors="np"))


def listed(batch):
    return dict(TOKENIZER(batch["text"], padding="max_length", max_length=20))


def with_tensors(batch):
    return {name: list(values) for name, values in TOKENIZER(batch["text"], padding=True, return_tensors="pt").items()}


def by_pad(batch):
    return dict(TOKENIZER.pad({"input_ids": batch["input_ids"]}, return_tensors="np"))


MAPS = {
    "lists": lambda: texts().map(listed, batched=True, batch_size=5),
    "arrays": lambda: texts().map(padded, batched=True, batch_size=5),
    "tensors": lambda: texts().map(with_tensors, batched=True, batch_size=5, remove_columns=["text"]),
    "pad": lambda: tokens().map(by_pad, batched=True, batch_size=4),
    "rows": lambda: tokens().map(lambda row, at: {"length": len(row["input_ids"]), "place": at}, with_indices=True),
    "columns": lambda: tokens().map(lambda ids: {"n": len(ids)}, input_columns=["input_ids"]),
    "partial": lambda: texts().map(functools.partial(TOKENIZER, padding=True), input_columns=["text"], batched=True),
    "of numpy": lambda: tokens().with_format("numpy").map(lambda row: {"most": row["input_ids"].max()}),
    "of torch": lambda: tokens().with_format("torch").map(lambda row: {"most": row["input_ids"].max()}),
    "filter": lambda: tokens().filter(lambda row: len(row["input_ids"]) > 4),
    "filter batches": lambda: tokens().filter(
        lambda batch: [number % 2 == 0 for number in batch["number"]], batched=True
    ),
}


@pytest.mark.parametrize("name", MAPS)
@unchanged
def test_map(name):
    return seen(MAPS[name]())


@unchanged
def test_map_in_two_processes():
    return seen(texts().map(padded, batched=True, batch_size=3, num_proc=2))


@pytest.mark.parametrize("first", ["plain", "patched"])
@pytest.mark.parametrize("processes", [None, 2])
def test_cache_files_are_found_again(first, processes, tmp_path):
    """What was computed without the patches is found with them, and the other way round."""
    texts().save_to_disk(tmp_path / "texts")
    calls = tmp_path / "calls"

    def job():
        dataset = datasets.load_from_disk(tmp_path / "texts")
        called = functools.partial(counted, calls)
        result = dataset.map(called, batched=True, batch_size=4, num_proc=processes)
        result = (
            result.filter(lambda row: len(row["text"]) > 12)
            .shuffle(seed=3)
            .sort("number")
            .train_test_split(0.25, seed=0)["train"]
        )
        return seen(result), sorted(path.name for path in (tmp_path / "texts").iterdir()), result.cache_files

    def patched():
        with everything_patched():
            return job()

    ways = {"plain": job, "patched": patched}
    expected = ways.pop(first)()
    before = calls.read_text()
    assert before
    assert ways.popitem()[1]() == expected
    assert calls.read_text() == before


def counted(calls, batch):
    with calls.open("a") as file:
        file.write("x")
    return padded(batch)


@unchanged
def test_hashes():
    """Of what `map` may be given. Collators are other classes meanwhile, and so have other hashes."""
    model = standins.decoder()
    functions = [TOKENIZER, TOKENIZER.pad, padded, by_pad, MAPS["columns"], functools.partial(TOKENIZER, padding=True)]
    return [Hasher.hash(value) for value in (*functions, model.config, texts(), TOKENIZER(TEXTS), TEXTS)]


FORMATS = [None, "python", "numpy", "torch", "pandas", "arrow", "polars"]


@pytest.mark.parametrize("name", FORMATS)
@unchanged
def test_formats(name):
    dataset = texts() if name in (None, "python", "pandas", "arrow") else texts().remove_columns("missing")
    outcomes = []
    for view in (
        dataset.with_format(name),
        dataset.with_format(name, columns=["words", "label"]),
        dataset.with_format(name, columns=["number"], output_all_columns=name not in ("pandas", "arrow", "polars")),
    ):
        keys = [0, 3, -1, np.int64(2), slice(2, 5), slice(None, None, -3), [1, 1, 4], range(2, 6, 2), "label", True]
        outcomes += [outcome(view.__getitem__, key) for key in (*keys, 99, -99, "nothing", 1.5, None, [], [99])]
        outcomes += [outcome(view.__getitems__, key) for key in ([0, 2], [])] if name != "polars" else []
        outcomes.append(outcome(lambda data: list(data.iter(batch_size=5)), view))
        outcomes.append(outcome(list, view))
        outcomes.append(outcome(list, view.select([5, 2, 2, 0])))
    return [plain(value) if kind == "returned" else (type(value), str(value)) for kind, value in outcomes]


def plain(value: Any) -> Any:
    """What is in rows, tables, frames and arrays of objects. Rows that wait in Arrow are a list, as others see them."""
    kind = list if isinstance(value, list) else type(value)
    for classes, contents in CONTENTS:
        if isinstance(value, classes):
            return kind, contents(value)
    return frozen(value)


CONTENTS = [
    (dict, lambda value: [(name, plain(item)) for name, item in value.items()]),
    ((list, datasets.arrow_dataset.Column), lambda value: list(map(plain, value))),
    (np.ndarray, lambda value: list(map(plain, value)) if value.dtype == object else frozen(value)),
    (pa.Table, lambda value: (value.schema, value.to_pylist())),
    (pa.ChunkedArray, lambda value: (value.type, value.to_pylist())),
    ((pd.DataFrame, pd.Series), lambda value: pickle.dumps(value.to_dict())),
    (pl.DataFrame, lambda value: repr(value.to_dicts())),
    (pl.Series, lambda value: repr(value.to_list())),
]


@unchanged
def test_transforms_and_rows_that_were_changed():
    dataset = texts().with_transform(lambda batch: dict(TOKENIZER(batch["text"], padding=True, return_tensors="pt")))
    rows = texts().with_format("numpy", columns=["number", "score"]).__getitems__([2, 1])
    rows[0]["number"] = 7
    rows.append({"number": 1})
    row = texts()[3]
    row["words"].append(5)
    torched = texts().with_format("torch", columns=["square", "words"], dtype=torch.float64)[2]
    return frozen([dataset[1], dataset[:3], dataset.__getitems__([0, 4]), list(rows), row, texts()[3], torched])


# Of datasets, which reads with pandas.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@unchanged
def test_files(tmp_path):
    """Written and read again, with the same bytes."""
    dataset = texts().remove_columns(["square", "inner"])
    files = {kind: tmp_path / f"rows.{kind}" for kind in ("csv", "json", "parquet")}
    for kind, path in files.items():
        getattr(dataset, f"to_{kind}")(path)
    dataset.select([3, 1]).save_to_disk(tmp_path / "saved")
    saved = {path.name: path.read_bytes() for path in sorted((tmp_path / "saved").iterdir()) if path.suffix == ".arrow"}
    again = datasets.load_from_disk(tmp_path / "saved")
    loaded = [
        datasets.load_dataset(kind, data_files=str(path), cache_dir=str(tmp_path / "cache"), split="train")[:]
        for kind, path in files.items()
    ]
    return frozen([[path.read_bytes() for path in files.values()], saved, again[:], loaded])


def test_pickles_and_copies():
    dataset = texts().select([4, 2, 1]).with_format("numpy", columns=["number", "words"])

    def job():
        dataset.__getitems__([0, 1])
        copies = [copy.copy(dataset), copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))]
        return pickle.dumps(dataset), [seen(twin) for twin in copies], repr(dataset), sorted(vars(dataset))

    assert_unchanged(job)
    with everything_patched():
        pickled = pickle.dumps((dataset, dataset.__getitems__([2, 0])))
    again, rows = pickle.loads(pickled)
    assert seen(again) == seen(dataset)
    assert frozen(list(rows)) == frozen(dataset.__getitems__([2, 0]))
