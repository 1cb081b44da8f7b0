"""The named workloads of data in Arrow: fetched from a datasets.Dataset and collated, or handed over as a table."""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import transformers

import quadrat
from cases import Case, Feature, corpus, encode, pick, tokenizer
from quadrat.data.stored import original_getitems as fetched_by_datasets

quadrat.patch_datasets()  # the reference's features come from the original all the same


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


def fetched(name: str, description: str, collator: str, *, special: bool = False) -> Case:
    """Fetching by `__getitems__`, as a DataLoader does, and collating."""
    plain, keys = shuffled(special=special)
    reference, ours = getattr(transformers, collator)(tokenizer()), getattr(quadrat, collator)(tokenizer())
    source = quadrat.ArrowDataset(plain)

    def fetch_reference(_: list[Feature]) -> Any:
        return reference(fetched_by_datasets(plain, keys))

    def fetch_quadrat(_: list[Feature]) -> Any:
        return ours(source.__getitems__(keys))

    return Case(name, description, fetch_reference, fetch_quadrat, fetched_by_datasets(plain, keys))


def fetch_pad() -> Case:
    return fetched("fetch_pad", "fetch and pad, ArrowDataset", "DataCollatorWithPadding")


def fetch_mlm() -> Case:
    return fetched("fetch_mlm", "fetch and mask, ArrowDataset", "DataCollatorForLanguageModeling", special=True)


def unchanged(name: str, description: str, collator: str, rows: datasets.Dataset, **options: Any) -> Case:
    """The same `datasets.Dataset` for both, with `patch_datasets` for quadrat."""
    given = () if collator == "DataCollatorWithFlattening" else (tokenizer(),)
    reference, ours = (getattr(module, collator)(*given, **options) for module in (transformers, quadrat))
    keys = pick()

    def fetch_reference(_: list[Feature]) -> Any:
        return reference(fetched_by_datasets(rows, keys))

    def fetch_quadrat(_: list[Feature]) -> Any:
        return ours(rows.__getitems__(keys))

    return Case(name, description, fetch_reference, fetch_quadrat, fetched_by_datasets(rows, keys))


@functools.cache
def labelled() -> datasets.Dataset:
    """With a label for each token."""
    labels = [[token % 7 for token in ids] for ids in dataset().data.column("input_ids").to_pylist()]
    return datasets.Dataset(dataset().data.append_column("labels", pa.array(labels, pa.list_(pa.int64()))))


def usual_pad() -> Case:
    return unchanged("usual_pad", "fetch and pad", "DataCollatorWithPadding", dataset())


def usual_mlm() -> Case:
    rows = dataset(special=True)
    return unchanged("usual_mlm", "fetch and mask", "DataCollatorForLanguageModeling", rows)


def usual_clm() -> Case:
    return unchanged("usual_clm", "fetch, causal", "DataCollatorForLanguageModeling", dataset(), mlm=False)


def usual_tokens() -> Case:
    collator = "DataCollatorForTokenClassification"
    return unchanged("usual_tokens", "fetch, labels of tokens", collator, labelled())


def usual_seq2seq() -> Case:
    return unchanged("usual_seq2seq", "fetch, sequence to sequence", "DataCollatorForSeq2Seq", labelled())


def usual_choices() -> Case:
    ids = dataset().data.column("input_ids").to_pylist()
    choices = [[ids[(row + choice) % len(ids)] for choice in range(4)] for row in range(len(ids))]
    masks = [[[1] * len(one) for one in row] for row in choices]
    rows = datasets.Dataset.from_dict({"input_ids": choices, "attention_mask": masks, "label": [0] * len(ids)})
    return unchanged("usual_choices", "fetch, four choices a row", "DataCollatorForMultipleChoice", rows)


def usual_flatten() -> Case:
    rows = dataset().select_columns(["input_ids"])
    return unchanged("usual_flatten", "fetch, padding-free", "DataCollatorWithFlattening", rows)


def handed_over(name: str, description: str, make: Callable[[dict[str, list[Any]]], Any]) -> Case:
    """Columns given to quadrat's collator; the reference gets the same rows as a list of dicts."""
    plain, keys = shuffled()
    rows = fetched_by_datasets(plain, keys)
    features = make({column: [row[column] for row in rows] for column in rows[0]})
    ours = quadrat.DataCollatorWithPadding(tokenizer())
    return Case(name, description, transformers.DataCollatorWithPadding(tokenizer()), lambda _: ours(features), rows)


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
    usual = [usual_pad, usual_mlm, usual_clm, usual_tokens, usual_seq2seq, usual_choices, usual_flatten]
    return [*usual, fetch_pad, fetch_mlm, pad_table, pad_dict]
