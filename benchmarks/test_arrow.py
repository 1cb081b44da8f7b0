"""Data in Arrow: fetched from a datasets.Dataset and collated, or given as a table."""

import functools
from collections.abc import Callable
from typing import Any

import datasets
import pyarrow as pa
import pytest

import quadrat
from benchmarks.jobs import Job, timed, timed_alone
from benchmarks.workload import collated, pair, pick, saved, shuffled
from quadrat.data.arrow import original_getitems as fetched_by_datasets


def fetched(collator: str, rows: Any, ours: Any = None, keys: Any = None, **options: Any) -> Job:
    """Fetched by `__getitems__`, as a DataLoader does, from the same `datasets.Dataset` for both or from `ours`."""
    (reference, replacement), keys = pair(collator, **options), pick() if keys is None else keys
    source = rows if ours is None else ours
    ways = lambda _: reference(fetched_by_datasets(rows, keys)), lambda _: replacement(source.__getitems__(keys))
    return collated(ways, fetched_by_datasets(rows, keys))


def from_arrow_dataset(collator: str, *, special: bool = False) -> Job:
    rows, keys = shuffled(special=special)
    return fetched(collator, rows, quadrat.ArrowDataset(rows), keys)


@functools.cache
def labelled() -> datasets.Dataset:
    """With a label for each token."""
    labels = [[token % 7 for token in ids] for ids in saved().data.column("input_ids").to_pylist()]
    return datasets.Dataset(saved().data.append_column("labels", pa.array(labels, pa.list_(pa.int64()))))


def choices() -> datasets.Dataset:
    ids = saved().data.column("input_ids").to_pylist()
    rows = [[ids[(row + choice) % len(ids)] for choice in range(4)] for row in range(len(ids))]
    masks = [[[1] * len(choice) for choice in row] for row in rows]
    return datasets.Dataset.from_dict({"input_ids": rows, "attention_mask": masks, "label": [0] * len(ids)})


def handed_over(make: Callable[[dict[str, list[Any]]], Any]) -> Job:
    """Columns given to quadrat's collator; the reference gets the same rows as a list of dicts."""
    rows = fetched_by_datasets(*shuffled())
    columns = make({column: [row[column] for row in rows] for column in rows[0]})
    return collated(pair("DataCollatorWithPadding"), rows, of=columns)


def table(columns: dict[str, list[Any]]) -> pa.Table:
    return pa.Table.from_pydict(columns, schema=saved().data.table.schema)


pytestmark = pytest.mark.usefixtures("patched_datasets")
LANGUAGE = "DataCollatorForLanguageModeling"
CASES = {
    "fetch and pad": lambda: fetched("DataCollatorWithPadding", saved()),
    "fetch and mask": lambda: fetched(LANGUAGE, saved(special=True)),
    "fetch, causal": lambda: fetched(LANGUAGE, saved(), mlm=False),
    "fetch, labels of tokens": lambda: fetched("DataCollatorForTokenClassification", labelled()),
    "fetch, sequence to sequence": lambda: fetched("DataCollatorForSeq2Seq", labelled()),
    "fetch, four choices a row": lambda: fetched("DataCollatorForMultipleChoice", choices()),
    "fetch, padding-free": lambda: fetched("DataCollatorWithFlattening", saved().select_columns(["input_ids"])),
    "fetch and pad, ArrowDataset": lambda: from_arrow_dataset("DataCollatorWithPadding"),
    "fetch and mask, ArrowDataset": lambda: from_arrow_dataset(LANGUAGE, special=True),
    "padding, a pyarrow.Table": lambda: handed_over(table),
    "padding, a dict of lists": lambda: handed_over(dict),
}
test_cold = timed(CASES)
test_warm = timed_alone(CASES, small=1, said_as="warm_ns")
