"""BatchedDataset: what its docstring promises; Trainer, accelerate and DataLoader with batches of any size."""

import collections
import copy
import pickle
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from transformers import BertForTokenClassification, set_seed

import quadrat
from quadrat.input.rows import Rows
from support.compare import assert_same_batch
from support.isolated import in_two
from support.strategies import make_tokenizer
from support.trainer import Losses, Stop, arguments, tiny
from support.two_processes import batched

BUDGET = 64


LENGTHS = np.random.default_rng(0).integers(3, 30, 60).tolist()
ROWS = [
    {"input_ids": [3 + (row * 31 + i) % 300 for i in range(n)], "attention_mask": [1] * n, "labels": [row % 3] * n}
    for row, n in enumerate(LENGTHS)
]


class Map:
    """A map-style dataset of nothing but `len` and `[]`."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def as_dataset(rows, shuffled=False):
    dataset = datasets.Dataset.from_list(rows)
    if not shuffled:
        return dataset
    order = np.random.default_rng(1).permutation(len(rows))
    return dataset.select(np.argsort(order)).select(order)


KINDS = {
    "dataset": as_dataset,
    "with indices": lambda rows: as_dataset(rows, shuffled=True),
    "numpy": lambda rows: as_dataset(rows).with_format("numpy"),
    "transform": lambda rows: as_dataset(rows).with_transform(dict),
    "arrow": lambda rows: quadrat.ArrowDataset(as_dataset(rows)),
    "list": list,
    "map": Map,
}
CLASSIFICATION = quadrat.DataCollatorForTokenClassification(make_tokenizer())


def budget(lengths=LENGTHS, **options):
    return quadrat.TokenBudgetBatchSampler(lengths, BUDGET, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_items_are_batches(kind):
    dataset = quadrat.data.BatchedDataset(KINDS[kind](ROWS), budget())
    for epoch in (0, 3):
        dataset.set_epoch(epoch)
        batches = budget().batches(epoch).to_lists()
        assert len(dataset) == len(batches)
        for i, batch in enumerate(batches):
            rows = [ROWS[row] for row in batch]
            assert_same_batch(CLASSIFICATION([dataset[i]]), CLASSIFICATION(rows))
            assert isinstance(dataset[i], list)
            assert [{name: list(row[name]) for name in row} for row in dataset[i - len(batches)]] == rows
    assert dataset.epoch == 3


def test_rows_stay_in_arrow():
    dataset = quadrat.data.BatchedDataset(as_dataset(ROWS), budget())
    item = dataset[0]
    assert type(item) is Rows
    CLASSIFICATION([item])
    assert not item.handed_out
    item[0]["labels"][0] = 77  # an edit is collated
    assert CLASSIFICATION([item])["labels"][0, 0] == 77


@pytest.mark.parametrize("kind", ["dataset", "list"])
def test_several_batches_at_once(kind):
    dataset = quadrat.data.BatchedDataset(KINDS[kind](ROWS), budget())
    loader = DataLoader(dataset, batch_size=2, collate_fn=CLASSIFICATION)
    with pytest.raises(ValueError, match=r"2 batches at once.*per_device_train_batch_size=1"):
        next(iter(loader))


@given(st.lists(st.lists(st.integers(0, 59), min_size=1, max_size=5), min_size=1, max_size=9))
def test_fixed_batches(batches):
    for given_batches in (batches, iter(batches), quadrat.Ragged.from_rows(batches), map(tuple, batches)):
        dataset = quadrat.data.BatchedDataset(ROWS, given_batches)
        dataset.set_epoch(5)
        assert [list(item) for item in dataset] == [[ROWS[row] for row in batch] for batch in batches]


def test_columns():
    for kind in ("dataset", "list", "map", "transform"):
        dataset = quadrat.data.BatchedDataset(KINDS[kind](ROWS), budget(), columns=["input_ids"])
        assert {tuple(row) for item in dataset for row in item} == {("input_ids",)}, kind
        with pytest.raises(ValueError, match="nothing"):
            quadrat.data.BatchedDataset(KINDS[kind](ROWS), budget(), columns=["input_ids", "nothing"])[0]
    with pytest.raises(TypeError, match=r"give \['input_ids'\]"):
        quadrat.data.BatchedDataset(ROWS, budget(), columns="input_ids")


def test_bad_arguments():
    stream = as_dataset(ROWS).to_iterable_dataset()
    for nothing in (stream, iter(ROWS), {"input_ids": [[1]]}, 3, datasets.DatasetDict(train=as_dataset(ROWS))):
        with pytest.raises(TypeError, match="cannot be indexed by row"):
            quadrat.data.BatchedDataset(nothing, [[0]])
    for error, message, batches in (
        (ValueError, "batch 1 has no rows", [[1], []]),
        (ValueError, "there are no batches", []),
        (ValueError, "row 60 is out of range: there are 60", [[1], [60]]),
        (ValueError, "row -1 is out of range", [[-1]]),
        (TypeError, "must be integers", [[0.5]]),
        (ValueError, "the sampler has 61 rows, but the dataset has 60", budget([*LENGTHS, 3])),
        (ValueError, "give it rank=None", budget(world_size=2, rank=1)),
    ):
        with pytest.raises(error, match=message):
            len(quadrat.data.BatchedDataset(ROWS, batches))
    dataset = quadrat.data.BatchedDataset(ROWS, budget())
    for index in (len(dataset), -len(dataset) - 1):
        with pytest.raises(IndexError, match=f"item {index} of {len(dataset)}"):
            dataset[index]
    for epoch, error in ((-1, ValueError), (1.5, TypeError), (2**32, ValueError)):
        with pytest.raises(error, match="epoch"):
            dataset.set_epoch(epoch)


def test_copies_have_epochs_of_their_own():
    dataset = quadrat.data.BatchedDataset(as_dataset(ROWS), budget())
    dataset.set_epoch(4)
    for other in (copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
        assert other.epoch == 4
        assert [list(item) for item in other] == [list(item) for item in dataset]
        other.set_epoch(1)
        assert dataset.epoch == 4


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_that_live_on_see_each_epoch(context):
    dataset = quadrat.data.BatchedDataset(as_dataset(ROWS), budget())
    loader = DataLoader(
        dataset, batch_size=1, num_workers=2, persistent_workers=True, multiprocessing_context=context,
        collate_fn=CLASSIFICATION,
    )  # fmt: skip
    for epoch in (0, 2):
        dataset.set_epoch(epoch)
        expected = [CLASSIFICATION([dataset[i]]) for i in range(len(dataset))]
        for got, want in zip(loader, expected, strict=True):
            assert_same_batch(got, want)


class Recording(Losses):
    """Keeps each step's rows, and the number of labels that Trainer counted."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        counted = kwargs.get("num_items_in_batch")
        mask = inputs["attention_mask"].bool()
        rows = [tuple(ids[keep].tolist()) for ids, keep in zip(inputs["input_ids"], mask, strict=True)]
        self.__dict__.setdefault("seen", []).append((rows, None if counted is None else int(counted)))
        return super().compute_loss(model, inputs, *args, **kwargs)


def train(
    folder: Any,
    *,
    stop: int | None = None,
    resume: bool = False,
    kind: str = "dataset",
    told: bool = True,
    **options: Any,
) -> Any:
    set_seed(3)
    args = arguments(
        folder, num_train_epochs=3, save_strategy="steps", save_steps=stop or 1000, include_num_input_tokens_seen=True,
        **{"per_device_train_batch_size": 1, **options},
    )  # fmt: skip
    trainer = Recording(
        model=tiny(BertForTokenClassification, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
        args=args,
        train_dataset=quadrat.data.BatchedDataset(KINDS[kind](ROWS), budget()),
        data_collator=CLASSIFICATION,
        callbacks=[quadrat.SetEpochCallback()] * told + ([Stop(stop)] if stop else []),
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


STEPS = len(budget())


@pytest.mark.parametrize("told", [True, False], ids=["told by the callback", "told by accelerate"])
@pytest.mark.parametrize("kind", ["dataset", "list"])
def test_trainer(kind: str, told: bool, tmp_path: Any) -> None:
    trainer = train(tmp_path, kind=kind, told=told)
    tokens = [tuple(row["input_ids"]) for row in ROWS]
    seen = [rows for rows, _ in trainer.seen]
    epochs = [seen[first : first + STEPS] for first in range(0, len(seen), STEPS)]
    assert len(epochs) == 3
    for epoch, batches in enumerate(epochs):
        assert collections.Counter(row for batch in batches for row in batch) == collections.Counter(tokens)
        planned = [[tokens[row] for row in batch] for batch in budget().batches(epoch).to_lists()]
        assert sorted(batches) == sorted(planned)
        assert batches != planned, "Trainer shuffles the batches"
    assert sorted(epochs[0]) != sorted(epochs[1])
    for rows, counted in trainer.seen:
        assert counted in {None, sum(map(len, rows))}
    # Padding counts, or not, by version.
    padded = 3 * sum(max(LENGTHS[row] for row in batch) * len(batch) for batch in budget().batches().to_lists())
    assert 3 * sum(LENGTHS) <= trainer.state.num_input_tokens_seen <= 1.1 * padded


@pytest.mark.parametrize("stop", [STEPS, STEPS // 2, STEPS + 3], ids=["between", "in the first", "in the second"])
def test_resumes(stop: int, tmp_path: Any) -> None:
    whole = train(tmp_path / "whole")
    first, rest = train(tmp_path, stop=stop), train(tmp_path, resume=True)
    assert first.seen + rest.seen == whole.seen
    assert np.allclose(first.losses + rest.losses, whole.losses, rtol=1e-5)


def test_workers_and_accumulation(tmp_path: Any) -> None:
    whole = train(tmp_path)
    workers = train(tmp_path, dataloader_num_workers=2, dataloader_persistent_workers=True)
    assert workers.seen == whole.seen
    accumulated = train(tmp_path, gradient_accumulation_steps=2)
    assert [rows for rows, _ in accumulated.seen] == [rows for rows, _ in whole.seen]
    if any(counted is not None for _, counted in accumulated.seen):
        pairs = accumulated.seen[:STEPS]
        sums = [sum(len(row) for rows, _ in pairs[i : i + 2] for row in rows) for i in range(0, STEPS, 2)]
        assert [counted for _, counted in pairs[::2]] == sums


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    """Each row once an epoch over both, as many batches on each, and in every epoch others."""
    seen = in_two(batched, tmp_path)
    assert [len(epochs) for epochs in seen] == [2, 2]
    for epoch in range(2):
        batches = [seen[rank][epoch] for rank in (0, 1)]
        assert len(batches[0]) == len(batches[1])
        rows = [row for share in batches for batch in share for row in batch]
        assert sorted(rows) == list(range(len(ROWS)))
        planned = budget(world_size=2, rank=None).batches(epoch).to_lists()
        assert sorted(map(sorted, batches[0] + batches[1])) == sorted(map(sorted, planned))
