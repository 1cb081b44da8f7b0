"""Code that quadrat replaces, in small and large batches: no replacement may be slower.

Evaluation, lengths, `tokenizer_pad`, streams, access to datasets, code that reads rows itself, collators made for each
batch, and rows of many classes. A test fails if a replacement takes longer in three of four rounds, by more than a
twentieth and a microsecond. Rows of some classes fall back, which costs a few microseconds: they are in large batches.
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
from transformers import DataCollatorWithPadding, trainer_pt_utils

import quadrat
from benchmarks.jobs import Call, Job, each, size
from benchmarks.workload import tokenizer

SIZES = (1, 8, 128)
STREAMED = size(512, 32)  # rows of a stream; the size is that of its batches
SHORTEST = 100e-6  # seconds of a round, about: calls in a row; turns are short, so other processes seldom fall into one
WAYS = ("without quadrat", "quadrat")


def pair(theirs: Call, ours: Call | None = None, patch: Callable[[], Any] | None = None) -> Job:
    """Two ways to one result. `patch`: what makes the first way quadrat's, where `ours` is None."""

    @contextlib.contextmanager
    def patched() -> Iterator[None]:
        with patch():
            theirs()  # what is looked up anew after a patch
            yield

    ways = dict(zip(WAYS, (theirs, ours or theirs), strict=True))
    return Job(ways, containers=False, around={} if patch is None else {"quadrat": patched})


def rows_of(size: int) -> list[dict[str, list[int]]]:
    lengths = np.random.default_rng(size).integers(1, 48, size).tolist()
    return [{"input_ids": [2] * length, "attention_mask": [1] * length} for length in lengths]


def concatenation(size: int) -> Job:
    tensors = [torch.zeros(size, 2), torch.ones(size, 2)]
    return pair(partial(trainer_pt_utils.nested_concat, *tensors), partial(quadrat.evaluation.concat_padded, tensors))


def evaluated(width: int, size: int) -> Job:
    """So many batches of logits [8, width], added to a container and joined."""
    batches = [torch.full((8, width), float(number)) for number in range(size)]

    def joined(home: Any) -> Any:
        container = home.EvalLoopContainer(do_nested_concat=True, padding_index=-100)
        for batch in batches:
            container.add(batch)
        return container.get_arrays()

    return pair(partial(joined, trainer_pt_utils), partial(joined, quadrat.evaluation))


def lengths(kind: str, size: int) -> Job:
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
    return pair(theirs[kind][1], partial(quadrat.lengths, theirs[kind][0]))


def padding(what: str, framework: str | None, size: int) -> Job:
    tok, rows = tokenizer(), rows_of(size)
    inputs = rows if what == "rows" else {name: [row[name] for row in rows] for name in rows[0]}
    pads = tok.pad, partial(quadrat.tokenizers.tokenizer_pad, tok)
    return pair(*(lambda pad=pad: pad(copy.copy(inputs), return_tensors=framework) for pad in pads))


def tokenizing(framework: str | None, size: int) -> Job:
    texts = [" ".join(["cat"] * len(row["input_ids"])) for row in rows_of(size)]
    tokenize = partial(tokenizer(), texts, padding=True, return_tensors=framework)
    return pair(tokenize, patch=quadrat.tokenizers.patch_tokenizers)


def stream(kind: str, name: str, size: int) -> Job:
    theirs, ours = (make(tokenizer()) for make in (DataCollatorWithPadding, quadrat.DataCollatorWithPadding))
    rows = [{"input_ids": [2] * 40, "attention_mask": [1] * 40} for _ in range(STREAMED)]
    plain = type("Stream", (IterableDataset,), {"__iter__": lambda _: iter(rows)})
    source = plain() if kind == "torch" else datasets.Dataset.from_list(rows).to_iterable_dataset()

    def plainly() -> int:
        batch, tokens = [], 0
        for row in source:
            batch.append(row)
            if len(batch) == size:
                tokens += theirs(batch)["input_ids"].numel()
                batch = []
        return tokens

    if name == "PackedStream":
        packed = quadrat.data.PackedStream(source, max_length=40 * size, window=512)
        return pair(plainly, lambda: sum(len(pack["input_ids"]) for pack in packed))
    batched = quadrat.BatchedStream(source, max_tokens=40 * size, window=512)
    return pair(plainly, lambda: sum(ours(batch)["input_ids"].numel() for batch in batched))


ACCESS: dict[str, Callable[[Any], Any]] = {
    "dataset[i]": lambda data: data[len(data) - 1],
    "iteration": list,
    "__getitems__": lambda data: list(data.__getitems__(list(range(len(data))))),
}


def access(call: str, name: str | None, size: int) -> Job:
    data = datasets.Dataset.from_list(rows_of(size)).with_format(name)
    return pair(partial(ACCESS[call], data), patch=quadrat.data.patch_datasets)


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


def stream_of(table: pa.Table, rows: int = 64, features: Any = None) -> Any:
    """A stream of tables of so many rows."""
    tables = [(at, table.slice(at, rows)) for at in range(0, len(table), rows)]
    examples = ArrowExamplesIterable(lambda numbers: iter(tables), {"numbers": [0]})
    return datasets.IterableDataset(examples, info=datasets.DatasetInfo(features=features))


STREAMS: dict[str, Callable[[Any], Any]] = {
    "a stream": lambda data: data.to_iterable_dataset(num_shards=4),
    "a stream without features": lambda data: stream_of(pa.concat_tables([data.data.table] * 4)),
    "a stream of tables of two rows": lambda data: stream_of(data.data.table, 2, data.features),
    "interleaved streams": lambda data: datasets.interleave_datasets(
        [stream_of(data.data.table, 64, data.features)] * 2
    ),
    "a shuffled stream": lambda data: data.to_iterable_dataset(num_shards=4).shuffle(seed=0, buffer_size=100),
}
SOURCES = {"a dataset": lambda data: data, "a shuffled dataset": lambda data: data.shuffle(seed=0), **STREAMS}


def own_code(column: str, source: str, size: int) -> Job:
    """Code that reads rows itself, by batches."""
    data = SOURCES[source](datasets.Dataset.from_list([COLUMNS[column](row) for row in range(STREAMED)]))
    keys = list(range(size))
    call = partial(by_batches, data, size) if source in STREAMS else lambda: touched(data.__getitems__(keys))
    return pair(call, patch=quadrat.data.patch_datasets)


def collated(name: str, options: dict[str, Any], rows: list[dict[str, Any]], home: Any) -> Any:
    return getattr(home, name)(**options)([*map(dict, rows)])


def made_anew(short: str, size: int) -> Job:
    """A collator that collates one batch."""
    options = {"tokenizer": tokenizer()} if short != "WithFlattening" else {}
    options |= {"mlm": False} if short == "ForLanguageModeling" else {}
    labelled = short not in ("WithPadding", "ForLanguageModeling")
    rows = [row | ({"labels": row["input_ids"]} if labelled else {}) for row in rows_of(size)]
    batch = partial(collated, f"DataCollator{short}", options, rows)
    return pair(partial(batch, transformers), partial(batch, quadrat))


def mapped(row: list[int]) -> Any:
    with tempfile.TemporaryFile() as file:
        values = np.memmap(file, np.int64, "w+", shape=len(row))
    values[:] = row
    return values


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


def of_class(name: str, size: int) -> Job:
    collator, form = CLASSES[name]
    equal = [{"input_ids": [2] * 48, "label": 1} for _ in range(size)]
    features = [form(row) for row in (rows_of(size) if collator == PADS else equal)]
    options = {"tokenizer": tokenizer()} if collator == PADS else {}
    return pair(*(partial(getattr(home, collator)(**options), features) for home in (transformers, quadrat)))


FRAMEWORKS = {"lists": None, "pt": "pt", "np": "np"}
COLLATORS = ("WithPadding", "ForSeq2Seq", "ForTokenClassification", "ForLanguageModeling", "WithFlattening")
JOBS: dict[str, Callable[[int], Job]] = {
    "concat_padded of two": concatenation,
    "EvalLoopContainer, batches of [8, 2]": partial(evaluated, 2),
    "EvalLoopContainer, batches of [8, 1000]": partial(evaluated, 1000),
    **{f"lengths, {kind}": partial(lengths, kind) for kind in ("list of dicts", "torch dataset", "Arrow")},
    **{
        f"tokenizer_pad, {what}, {name}": partial(padding, what, framework)
        for what in ("rows", "columns")
        for name, framework in FRAMEWORKS.items()
    },
    **{f"tokenizer(padding=True), {name}": partial(tokenizing, FRAMEWORKS[name]) for name in ("lists", "pt")},
    **{
        f"{name} over a {kind} IterableDataset": partial(stream, kind, name)
        for kind in ("torch", "datasets")
        for name in ("BatchedStream", "PackedStream")
    },
    **{
        f"{call}, {name or 'no format'}": partial(access, call, name)
        for name in (None, "numpy", "torch")
        for call in ACCESS
    },
    **{f"own code, {column}, {source}": partial(own_code, column, source) for column in COLUMNS for source in SOURCES},
    **{f"DataCollator{short}, made for each batch": partial(made_anew, short) for short in COLLATORS},
    **{f"{collator}, {name}": partial(of_class, name) for name, (collator, _) in CLASSES.items()},
}
CASES = {
    f"{name}, {size}": partial(make, size)
    for size in SIZES
    for name, make in JOBS.items()
    if size >= 128 or "falls back" not in name
}
SMALL = sum(case.endswith(f", {SIZES[0]}") for case in CASES)


@each(CASES, WAYS, small=SMALL)
def test_never_slower(benchmark: Any, in_turn: Any, case: str, way: str) -> None:
    in_turn(CASES[case], way, least=11, seconds=0.1, shortest=SHORTEST)
    if (quartiles := benchmark.extra_info.get("ratio_quartiles")) and quartiles[1] < 0.95:
        ratio, theirs = benchmark.extra_info["ratio"], benchmark.stats.stats.median * benchmark.extra_info["factor"]
        assert theirs / ratio - theirs < 1e-6, f"quadrat takes {1 / ratio:.2f} times as long as {theirs * 1e6:.1f} µs"
