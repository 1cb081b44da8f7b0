"""The named workloads of data in Arrow: fetched from a datasets.Dataset and collated, or handed over as a table."""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import transformers

import quadrat
from cases import Case, Feature, corpus, encode, pick, tokenizer


@functools.cache
def dataset(*, special: bool = False) -> datasets.Dataset:
    """The corpus, tokenised, saved and memory-mapped, in random order, with the types that datasets infers."""
    datasets.disable_progress_bars()
    rows: dict[str, list[Any]] = {}
    for index in range(len(corpus().texts)):
        for name, value in encode(index, return_special_tokens_mask=special).items():
            rows.setdefault(name, []).append(value)
    types = {name: datasets.Sequence(datasets.Value("int32" if name == "input_ids" else "int8")) for name in rows}
    folder = Path(tempfile.mkdtemp(prefix="quadrat-bench-"))
    datasets.Dataset.from_dict(rows, features=datasets.Features(types)).save_to_disk(folder)
    return datasets.load_from_disk(folder)


def shuffled(*, special: bool = False) -> tuple[datasets.Dataset, list[int]]:
    """The data set behind an indices mapping, and where the usual 32 rows are in it."""
    order = np.random.default_rng(0).permutation(len(dataset(special=special)))
    place = np.argsort(order)
    return dataset(special=special).select(order), [int(place[index]) for index in pick()]


def fetched(
    name: str, description: str, collator: str, target: float, *, arrow: bool = True, special: bool = False
) -> Case:
    """Fetching by `__getitems__`, as a DataLoader does, and collating."""
    # Looking rows up behind an indices mapping takes datasets as long again.
    plain, keys = shuffled(special=special) if arrow else (dataset(special=special), pick())
    reference, ours = getattr(transformers, collator)(tokenizer()), getattr(quadrat, collator)(tokenizer())
    source = quadrat.ArrowDataset(plain) if arrow else plain

    def fetch_reference(_: list[Feature]) -> Any:
        return reference(plain.__getitems__(keys))

    def fetch_quadrat(_: list[Feature]) -> Any:
        return ours(source.__getitems__(keys))

    return Case(name, description, fetch_reference, fetch_quadrat, plain.__getitems__(keys), target)


def fetch_pad_python() -> Case:
    return fetched(
        "fetch_pad_python",
        "fetch and pad, the same datasets.Dataset for both",
        "DataCollatorWithPadding",
        20,
        arrow=False,
    )


def fetch_pad() -> Case:
    return fetched("fetch_pad", "fetch and pad, ArrowDataset", "DataCollatorWithPadding", 300)


def fetch_mlm() -> Case:
    return fetched("fetch_mlm", "fetch and mask, ArrowDataset", "DataCollatorForLanguageModeling", 80, special=True)


def handed_over(name: str, description: str, make: Callable[[dict[str, list[Any]]], Any]) -> Case:
    """Columns given to quadrat's collator; the reference gets the same rows as a list of dicts."""
    plain, keys = shuffled()
    rows = plain.__getitems__(keys)
    features = make({column: [row[column] for row in rows] for column in rows[0]})
    ours = quadrat.DataCollatorWithPadding(tokenizer())
    return Case(
        name, description, transformers.DataCollatorWithPadding(tokenizer()), lambda _: ours(features), rows, None
    )


def pad_table() -> Case:
    table = dataset().data.table
    return handed_over(
        "pad_table",
        "padding, a pyarrow.Table",
        lambda columns: type(table).from_pydict(columns, schema=table.schema),
    )


def pad_dict() -> Case:
    return handed_over("pad_dict", "padding, a dict of lists", lambda columns: columns)


def builders() -> list[Callable[[], Case]]:
    return [fetch_pad_python, fetch_pad, fetch_mlm, pad_table, pad_dict]
