"""Code that quadrat replaces, at sizes from 1 to 512: no replacement may be slower.

`concat_padded`, lengths, `tokenizer_pad`, streams, access to datasets, code that reads rows itself, collators
made for each batch, and rows of many classes. The status is 1 if a ratio is below 0.95, and the difference a
microsecond or more. Rows of some classes fall back, which costs a few microseconds: they are in batches of 128 or more.
"""

import array
import collections
import contextlib
import copy
import itertools
import tempfile
import types
from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from functools import partial
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import torch
import transformers
from datasets.iterable_dataset import ArrowExamplesIterable
from torch.utils.data import IterableDataset
from transformers import DataCollatorWithPadding
from transformers.trainer_pt_utils import nested_concat

import quadrat
from benchmarks.measure import Call, Case, Cases, Way
from benchmarks.workload import tokenizer

SIZES = (1, 2, 8, 32, 128, 512)
STREAMED = 1024  # rows of a stream; the size is that of its batches


def pair(theirs: Call, ours: Call | None = None, patch: Callable[[], Any] | None = None) -> Case:
    """Two ways to one result. `patch`: what makes the first way quadrat's, where `ours` is None."""

    @contextlib.contextmanager
    def patched() -> Iterator[None]:
        with patch() if patch is not None else contextlib.nullcontext():
            theirs() if patch is not None else None  # what is looked up anew after a patch
            yield

    ways = {"without quadrat": theirs, "quadrat": Way(ours or theirs, around=patched)}
    # Turns are short, so that other processes seldom fall into one.
    return Case(ways, containers=False, rounds=51, shortest=200_000, least=0.95)


def rows_of(size: int) -> list[dict[str, list[int]]]:
    lengths = np.random.default_rng(size).integers(1, 48, size).tolist()
    return [{"input_ids": [2] * length, "attention_mask": [1] * length} for length in lengths]


def concatenations(size: int) -> dict[str, Case]:
    two = [torch.zeros(size, 2), torch.ones(size, 2)]
    calls = partial(nested_concat, *two), partial(quadrat.evaluation.concat_padded, two)
    return {"concat_padded of two": pair(*calls)}


def lengths(size: int) -> dict[str, Case]:
    rows = rows_of(size)
    data: Any = torch.utils.data.Subset(rows, range(size))  # type: ignore[arg-type]
    table = pa.table({"input_ids": [row["input_ids"] for row in rows]})

    def by_arrow() -> Any:
        return pyarrow.compute.list_value_length(table["input_ids"]).to_numpy().astype(np.int64)

    theirs: dict[str, tuple[Any, Call]] = {
        "list of dicts": (rows, lambda: np.array([len(row["input_ids"]) for row in rows])),
        "torch dataset": (data, lambda: np.array([len(data[i]["input_ids"]) for i in range(len(data))])),
        "Arrow": (table, by_arrow),
    }
    return {f"lengths, {name}": pair(call, partial(quadrat.lengths, given)) for name, (given, call) in theirs.items()}


def padding(size: int) -> dict[str, Case]:
    tok, rows, found = tokenizer(), rows_of(size), {}
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    texts = [" ".join(["cat"] * len(row["input_ids"])) for row in rows]
    for framework, said in ((None, "lists"), ("pt", "pt"), ("np", "np")):
        for what, given in (("rows", rows), ("columns", columns)):
            pads = tok.pad, partial(quadrat.tokenizers.tokenizer_pad, tok)
            found[f"tokenizer_pad, {what}, {said}"] = pair(
                *(lambda pad=pad, given=given, to=framework: pad(copy.copy(given), return_tensors=to) for pad in pads)
            )
        if framework != "np":
            tokenize = partial(tok, texts, padding=True, return_tensors=framework)
            found[f"tokenizer(padding=True), {said}"] = pair(tokenize, patch=quadrat.tokenizers.patch_tokenizers)
    return found


def streams(size: int) -> dict[str, Case]:
    theirs, ours = (make(tokenizer()) for make in (DataCollatorWithPadding, quadrat.DataCollatorWithPadding))
    rows = [{"input_ids": [2] * 40, "attention_mask": [1] * 40} for _ in range(STREAMED)]
    plain = type("Stream", (IterableDataset,), {"__iter__": lambda _: iter(rows)})
    kinds = {"torch": plain(), "datasets": datasets.Dataset.from_list(rows).to_iterable_dataset()}
    found = {}
    for kind, stream in kinds.items():
        batched = quadrat.BatchedStream(stream, max_tokens=40 * size, window=512)
        packed = quadrat.data.PackedStream(stream, max_length=40 * size, window=512)

        def plainly(stream: Any = stream) -> int:
            batch, tokens = [], 0
            for row in stream:
                batch.append(row)
                if len(batch) == size:
                    tokens += theirs(batch)["input_ids"].numel()
                    batch = []
            return tokens

        found[f"BatchedStream over a {kind} IterableDataset, collated"] = pair(
            plainly, lambda batched=batched: sum(ours(batch)["input_ids"].numel() for batch in batched)
        )
        found[f"PackedStream over a {kind} IterableDataset"] = pair(
            plainly, lambda packed=packed: sum(len(pack["input_ids"]) for pack in packed)
        )
    return found


def access(size: int) -> dict[str, Case]:
    found = {}
    for name in (None, "numpy", "torch"):
        data, everything = datasets.Dataset.from_list(rows_of(size)).with_format(name), list(range(size))
        calls: dict[str, Call] = {
            "dataset[i]": lambda data=data: data[len(data) - 1],
            "iteration": lambda data=data: list(data),
            "__getitems__": lambda data=data, everything=everything: list(data.__getitems__(everything)),
        }
        for call, made in calls.items():
            found[f"{call}, {name or 'no format'}"] = pair(made, patch=quadrat.data.patch_datasets)
    return found


# Columns by what they hold, of the row with this number.
COLUMNS: dict[str, Callable[[int], dict[str, Any]]] = {
    "tokens": lambda row: {"input_ids": [row] * (1 + row % 48), "label": row % 3},
    "lists of lists": lambda row: {"boxes": [[row, 1, 2, 3]] * (1 + row % 48)},
    "texts": lambda row: {"text": "word " * (1 + row % 48), "label": row % 3},
    "dicts": lambda row: {"messages": [{"role": "user", "content": "word " * (1 + row % 48)}] * 2},
    "bytes": lambda row: {"image": bytes(300), "label": row % 3},
    "nulls": lambda row: {"a": None if row % 3 else row, "b": None if row % 4 else [row, None]},
}


def touched(rows: Any) -> list[Any]:
    """A collate function of one's own, which reads all values."""
    return [value for row in rows for value in row.values()]


def by_batches(rows: Any, size: int) -> list[list[Any]]:
    iterator = iter(rows)
    return [touched(batch) for batch in iter(lambda: list(itertools.islice(iterator, size)), [])]


def stream_of(table: pa.Table, rows: int, features: Any) -> Any:
    """A stream of tables of so many rows."""
    tables = [(at, table.slice(at, rows)) for at in range(0, len(table), rows)]
    examples = ArrowExamplesIterable(lambda numbers: iter(tables), {"numbers": [0]})
    return datasets.IterableDataset(examples, info=datasets.DatasetInfo(features=features))


def own_code(size: int) -> dict[str, Case]:
    """Code that reads rows itself, by batches."""
    found, keys = {}, list(range(size))
    for name, column in COLUMNS.items():
        data = datasets.Dataset.from_list([column(row) for row in range(SIZES[-1])])
        table, features, stream = data.data.table, data.features, data.to_iterable_dataset(num_shards=4)
        ways: dict[str, Call] = {
            f"a {kind}dataset": lambda given=given: touched(given.__getitems__(keys))
            for kind, given in (("", data), ("shuffled ", data.shuffle(seed=0)))
        }
        streams = {
            "a stream": stream,
            "a stream without features": stream_of(pa.concat_tables([table] * 4), 64, None),
            "a stream of tables of two rows": stream_of(table, 2, features),
            "interleaved streams": datasets.interleave_datasets([stream_of(table, 64, features)] * 2),
            "a shuffled stream": stream.shuffle(seed=0, buffer_size=100),
        }
        ways |= {kind: partial(by_batches, given, size) for kind, given in streams.items()}
        for kind, call in ways.items():
            found[f"own code, {name}, {kind}"] = pair(call, patch=quadrat.data.patch_datasets)
    return found


def collated(name: str, given: dict[str, Any], rows: list[dict[str, Any]], home: Any) -> Any:
    return getattr(home, name)(**given)([*map(dict, rows)])


def made_anew(size: int) -> dict[str, Case]:
    """Collators that collate one batch."""
    tok, found = tokenizer(), {}
    for short in ("WithPadding", "ForSeq2Seq", "ForTokenClassification", "ForLanguageModeling", "WithFlattening"):
        given = {"tokenizer": tok} if short != "WithFlattening" else {}
        given |= {"mlm": False} if short == "ForLanguageModeling" else {}
        labelled = short not in ("WithPadding", "ForLanguageModeling")
        rows = [row | ({"labels": row["input_ids"]} if labelled else {}) for row in rows_of(size)]
        batch = partial(collated, f"DataCollator{short}", given, rows)
        found[f"DataCollator{short}, made for each batch"] = pair(partial(batch, transformers), partial(batch, quadrat))
    return found


def mapped(row: list[int]) -> Any:
    with tempfile.TemporaryFile() as file:
        made = np.memmap(file, np.int64, "w+", shape=len(row))
    made[:] = row
    return made


def ids(form: Callable[[list[int]], Any]) -> Callable[[Any], Any]:
    return lambda row: row | {"input_ids": form(row["input_ids"])}


PADS, STACKS, JOINS = "DataCollatorWithPadding", "DefaultDataCollator", "DataCollatorWithFlattening"
SUBCLASS = type("Subclass", (torch.Tensor,), {})
EXAMPLE = make_dataclass("Example", ["input_ids", "label"])
# Features of other classes, or with rows of other classes than lists, arrays and tensors, and what collates them.
CLASSES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "np.memmap": (PADS, ids(mapped)),
    "nn.Parameter": (PADS, ids(lambda row: torch.nn.Parameter(torch.tensor(row), requires_grad=False))),
    "a subclass of torch.Tensor": (PADS, ids(lambda row: torch.tensor(row).as_subclass(SUBCLASS))),
    "BatchFeature": (PADS, transformers.BatchFeature),
    "MappingProxyType": (PADS, types.MappingProxyType),
    "ChainMap": (PADS, collections.ChainMap),
    "dataclass": (STACKS, lambda row: EXAMPLE(**row)),
    "range, falls back": (STACKS, ids(lambda row: range(len(row)))),
    "deque, falls back": (STACKS, ids(collections.deque)),
    "array.array, falls back": (JOINS, ids(partial(array.array, "q"))),
    "memoryview, falls back": (JOINS, ids(lambda row: memoryview(np.array(row)))),
    "pyarrow.Array, falls back": (JOINS, ids(pa.array)),
    "pandas.Series, falls back": (JOINS, ids(pd.Series)),
}


def classes(size: int) -> dict[str, Case]:
    found, equal = {}, [{"input_ids": [2] * 48, "label": 1} for _ in range(size)]
    for name, (collator, form) in CLASSES.items():
        if size >= 128 or "falls back" not in name:
            given = [form(row) for row in (rows_of(size) if collator == PADS else equal)]
            options = {"tokenizer": tokenizer()} if collator == PADS else {}
            calls = (partial(getattr(home, collator)(**options), given) for home in (transformers, quadrat))
            found[f"{collator}, {name}"] = pair(*calls)
    return found


def cases(*, quick: bool) -> Cases:
    found: Cases = {}
    for make in (concatenations, lengths, padding, streams, access, own_code, made_anew, classes):
        for size in SIZES[:2] if quick else SIZES:
            for name, case in make(size).items():
                case.facts = {"name": name, "size": size}
                found[f"{name}, {size}"] = lambda case=case: case  # type: ignore[misc]
    return found
