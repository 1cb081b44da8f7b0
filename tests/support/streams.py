"""Streams of rows that say which row they are, from each kind of dataset."""

import functools

import datasets
import numpy as np
import torch
from torch.utils.data import IterableDataset

import quadrat

LIMIT = 24
LENGTHS = [int(n) for n in np.random.default_rng(0).integers(0, LIMIT + 1, 100)]


def rows_of(lengths):
    """Rows that say in each token which row they are of."""
    return [{"input_ids": [number] * length, "number": [number] * length} for number, length in enumerate(lengths)]


class Torch(IterableDataset):
    def __init__(self, rows, shards_itself=False):
        self.rows, self.shards_itself, self.epoch = rows, shards_itself, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        ours = self.rows[self.epoch :] + self.rows[: self.epoch]
        return iter(ours[info.id :: info.num_workers] if self.shards_itself and info else ours)


def from_shards(shards, rows):
    for shard in shards:
        yield from rows[shard::4]


DATASETS = {
    "list": list,
    "function": lambda rows: functools.partial(iter, rows),
    "torch": Torch,
    "datasets.Dataset": datasets.Dataset.from_list,
    "1 shard": lambda rows: datasets.Dataset.from_list(rows).to_iterable_dataset(),
    "4 shards": lambda rows: datasets.Dataset.from_list(rows).to_iterable_dataset(num_shards=4),
    "generator": lambda rows: datasets.IterableDataset.from_generator(
        from_shards, gen_kwargs={"shards": [0, 1, 2, 3], "rows": tuple(rows)}
    ),
    "mapped": lambda rows: (
        datasets.Dataset.from_list(rows)
        .to_iterable_dataset(num_shards=3)
        .map(lambda batch: {"more": batch["input_ids"]}, batched=True, batch_size=7)
    ),
    "buffer": lambda rows: (
        datasets.Dataset.from_list(rows).to_iterable_dataset(num_shards=4).shuffle(seed=3, buffer_size=20)
    ),
}
KINDS = ["batches", "packs"]


def stream_of(kind, dataset, **options):
    """A stream of a dataset, or of one of `DATASETS` by name."""
    dataset = DATASETS[dataset](rows_of(LENGTHS)) if isinstance(dataset, str) else dataset
    options = {"window": 24, **options}
    if kind == "batches":
        return quadrat.BatchedStream(dataset, 3 * LIMIT, **options)
    return quadrat.data.PackedStream(dataset, LIMIT, columns=["input_ids", "number"], **options)


def said(item):
    if isinstance(item, list):
        return [row["input_ids"] for row in item]
    documents = np.split(item["input_ids"], item["seq_lengths"].cumsum()[:-1])
    return [document.tolist() for document in documents]


def after(state, stream):
    """The items of a stream that goes on at a state."""
    stream.load_state_dict(state)
    return [said(item) for item in stream]


def documents(items):
    return sorted(document for item in items for document in item)


def everything(lengths=LENGTHS):
    return sorted(row["input_ids"] for row in rows_of(lengths))


def outcome_of(dataset, stop=None, states=True):
    """The rows of a `datasets.IterableDataset` up to one, and the states; or the error."""
    outcomes = []
    try:
        for number, row in enumerate(dataset):
            outcomes.append((repr({**row}), list(row), dataset.state_dict() if states else None))
            if number == stop:
                break
    except Exception as error:
        outcomes.append((type(error), str(error)))
    return outcomes
