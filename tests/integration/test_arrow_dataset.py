"""ArrowDataset: the batches of the datasets.Dataset it was made from, in every place that one has."""

import copy
import pickle
import shutil

import datasets
import pyarrow as pa
import pyarrow.parquet
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Subset

import quadrat
from quadrat.input.rows import Rows
from support.compare import assert_same_batch
from support.strategies import make_tokenizer
from support.trainer import arguments, trained

ROWS = 40
FEATURES = datasets.Features(
    {
        "input_ids": datasets.Sequence(datasets.Value("int32")),
        "attention_mask": datasets.Sequence(datasets.Value("int8")),
        "labels": datasets.Value("int64"),
        "text": datasets.Value("string"),
    }
)


def columns(rows=ROWS):
    lengths = [3 + 7 * row % 11 for row in range(rows)]
    return {
        "input_ids": [[3 + (row * 31 + i) % 300 for i in range(n)] for row, n in enumerate(lengths)],
        "attention_mask": [[1] * n for n in lengths],
        "labels": [row % 3 for row in range(rows)],
        "text": [f"row {row}" for row in range(rows)],
    }


@pytest.fixture
def saved(tmp_path):
    datasets.Dataset.from_dict(columns(), features=FEATURES).save_to_disk(tmp_path / "saved")
    return datasets.load_from_disk(tmp_path / "saved")


def in_memory(_):
    return datasets.Dataset.from_dict(columns(), features=FEATURES)


def memory_mapped(path):
    in_memory(path).save_to_disk(path / "one")
    return datasets.load_from_disk(path / "one")


def concatenated(path):
    return datasets.concatenate_datasets([memory_mapped(path), in_memory(path).select(range(5, 20))])


def beside(path):
    data = memory_mapped(path)
    return datasets.concatenate_datasets([data.remove_columns("labels"), data.select_columns("labels")], axis=1)


def parquet(path):
    in_memory(path).to_parquet(path / "rows.parquet", batch_size=7)
    table = pa.parquet.read_table(path / "rows.parquet", memory_map=True)
    return datasets.Dataset(table)


SOURCES = {
    "in memory": in_memory,
    "memory-mapped": memory_mapped,
    "shuffled": lambda path: memory_mapped(path).shuffle(seed=3),
    "selected": lambda path: memory_mapped(path).select([7, 3, 3, 30, 11, 5, 6, 9, 0, 1]),
    "filtered": lambda path: memory_mapped(path).filter(lambda row: len(row["input_ids"]) > 4),
    "concatenated": concatenated,
    "concatenated and shuffled": lambda path: concatenated(path).shuffle(seed=3),
    "columns beside each other": beside,
    "parquet": parquet,
}


def model_columns(dataset):
    return dataset.remove_columns("text")


@pytest.fixture(params=SOURCES)
def dataset(request, tmp_path):
    return SOURCES[request.param](tmp_path)


def collator(module=quadrat):
    return module.DataCollatorWithPadding(make_tokenizer(model_input_names=("input_ids", "attention_mask")))


def test_batches_are_those_of_the_dataset(dataset):
    plain = model_columns(dataset)
    arrow = quadrat.ArrowDataset(dataset, columns=["input_ids", "attention_mask", "labels"])
    assert arrow.column_names == plain.column_names

    first = -len(plain) if plain._indices is None else 0  # datasets takes no negative keys beside an indices mapping

    @given(st.lists(st.integers(first, len(plain) - 1), min_size=1, max_size=8))
    def check(keys):
        rows = arrow.__getitems__(keys)
        assert isinstance(rows, Rows)
        assert list(rows) == plain.__getitems__(keys)
        assert_same_batch(collator(transformers)(plain.__getitems__(keys)), collator()(rows))

    check()


def test_it_is_the_dataset(saved):
    arrow = quadrat.ArrowDataset(saved)
    assert isinstance(arrow, datasets.Dataset)
    assert len(arrow) == len(saved)
    assert arrow.features == saved.features
    assert arrow[3] == saved[3]
    assert arrow[2:5] == saved[2:5]
    assert list(arrow) == list(saved)
    assert repr(arrow) == f"Arrow{saved!r}"


@pytest.mark.parametrize(
    "choose",
    [
        lambda ds: ds.select([4, 2]),
        lambda ds: ds.shuffle(seed=1),
        lambda ds: ds.sort("text"),
        lambda ds: ds.filter(lambda row: row["labels"] == 1),
        lambda ds: ds.shard(4, 1),
        lambda ds: ds.remove_columns(["labels", "text"]),
        lambda ds: ds.select_columns(["text", "input_ids"]),
        lambda ds: ds.rename_column("labels", "label"),
        lambda ds: ds.map(lambda row: {"labels": row["labels"] + 1}),
        copy.deepcopy,
        lambda ds: pickle.loads(pickle.dumps(ds)),
    ],
)
def test_what_is_made_of_it_is_one_too(saved, choose):
    arrow, plain = quadrat.ArrowDataset(saved), choose(saved)
    arrow.__getitems__([0])  # what it knows of its memory is not handed on
    chosen = choose(arrow)
    assert type(chosen) is quadrat.ArrowDataset
    keys = [1, 0]
    assert list(chosen.__getitems__(keys)) == plain.__getitems__(keys)
    assert list(arrow.__getitems__(keys)) == saved.__getitems__(keys)


def test_columns_of_the_format_are_kept(saved):
    saved.set_format("numpy", columns=["labels", "input_ids"])
    rows = quadrat.ArrowDataset(saved).__getitems__([2])
    assert rows.names == ("input_ids", "labels")
    saved.set_format("numpy", columns=["labels"], output_all_columns=True)
    assert quadrat.ArrowDataset(saved).__getitems__([2]).names == tuple(FEATURES)


def test_a_transform_is_applied(saved):
    arrow = quadrat.ArrowDataset(saved)
    arrow.set_transform(lambda batch: {"n": [len(row) for row in batch["input_ids"]]})
    assert arrow.__getitems__([0, 1]) == [{"n": len(row)} for row in saved[:2]["input_ids"]]


def test_pickles_small(saved):
    arrow = quadrat.ArrowDataset(datasets.concatenate_datasets([saved] * 50))
    arrow.__getitems__([0])
    assert len(pickle.dumps(arrow)) < len(pickle.dumps(datasets.concatenate_datasets([saved] * 50))) + 500


@pytest.mark.parametrize("context", [None, "fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_in_a_data_loader(saved, context):
    workers = {} if context is None else {"num_workers": 2, "multiprocessing_context": context}
    plain, arrow = model_columns(saved).shuffle(seed=1), quadrat.ArrowDataset(model_columns(saved).shuffle(seed=1))
    expected = DataLoader(plain, batch_size=7, collate_fn=collator(transformers))
    got = DataLoader(arrow, batch_size=7, collate_fn=collator(), **workers)
    for batch, other in zip(expected, got, strict=True):
        assert_same_batch(batch, other)


def losses(dataset, module, path, **options):
    """A Trainer that has columns to remove, and what it lost at each step."""
    args = arguments(path, max_steps=6, per_device_train_batch_size=5, seed=3, **options)
    model = transformers.BertForSequenceClassification
    return trained(model, dataset, args, data_collator=collator(module)).losses


@pytest.mark.parametrize("workers", [0, 2])
def test_in_trainer(saved, tmp_path, workers):
    expected = losses(saved, transformers, tmp_path)
    assert losses(quadrat.ArrowDataset(saved), quadrat, tmp_path, dataloader_num_workers=workers) == expected
    assert len(expected) == 6


def test_trainer_removes_columns_from_a_subset(saved, tmp_path):
    """Something around the dataset: Trainer then takes the columns out of every feature."""
    everything = range(len(saved))
    got = losses(Subset(quadrat.ArrowDataset(saved), everything), quadrat, tmp_path)
    assert got == losses(Subset(saved, everything), transformers, tmp_path)


@pytest.mark.parametrize("key", [ROWS, -ROWS - 1, 10**18, "a"])
def test_rows_that_are_not_there(saved, key):
    message = "interpreted as an integer" if key == "a" else f"row {key} is out of range: there are {ROWS} rows"
    with pytest.raises(TypeError if key == "a" else IndexError, match=message):
        quadrat.ArrowDataset(saved).__getitems__([0, key])


def test_other_datasets_are_refused(saved):
    with pytest.raises(TypeError, match="one split of a DatasetDict"):
        quadrat.ArrowDataset(datasets.DatasetDict(train=saved))
    with pytest.raises(TypeError, match="IterableDataset"):
        quadrat.ArrowDataset(saved.to_iterable_dataset())
    with pytest.raises(ValueError, match="nowhere"):
        quadrat.ArrowDataset(saved, columns=["nowhere"])


def test_files_deleted_under_workers(saved, tmp_path):
    """Memory that is mapped stays; whoever has to open the files again says that they are gone."""
    arrow = quadrat.ArrowDataset(model_columns(saved))
    expected = list(DataLoader(arrow, batch_size=8, collate_fn=collator()))
    loader = DataLoader(arrow, batch_size=8, collate_fn=collator(), num_workers=1, multiprocessing_context="fork")
    batches = iter(loader)
    shutil.rmtree(tmp_path / "saved")
    for batch, other in zip(expected, batches, strict=True):
        assert_same_batch(batch, other)
    with pytest.raises(FileNotFoundError, match=r"\.arrow"):
        pickle.loads(pickle.dumps(arrow))
