"""Every other way of making the same tensors, over a grid of batch sizes, lengths and kinds of rows.

Each way is written as a user would write it. Two jobs. "padding": rows of `input_ids`, `token_type_ids` and
`attention_mask` become int64 tensors [rows, longest], padded with 0. "flattening": rows of `input_ids` become one row
without padding, with position ids and labels. A way takes the rows in the form that suits it best, where a data set can
give them in several. With transformers 4, padding of the usual batch alone.
"""

import functools
import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

import quadrat
from benchmarks.jobs import BOTH, Job, timed
from benchmarks.workload import OLD, pair, stored, token_ids, tokenizer
from quadrat.data.arrow import original_getitems as fetched_by_datasets

if TRL := importlib.util.find_spec("trl"):
    import trl.trainer.utils  # before anything is compared, for it draws random numbers
AWKWARD = importlib.util.find_spec("awkward")

pytestmark = pytest.mark.usefixtures("patched_datasets")  # quadrat reads the unchanged data sets
COLUMNS = ("input_ids", "token_type_ids", "attention_mask")
FORMS: dict[str, Any] = {"lists": list, "NumPy arrays": np.array, "torch tensors": torch.tensor}
INPUTS = (*FORMS, "Dataset", "ArrowDataset")

Rows = Any  # a list of dicts of lists, arrays or tensors; with the form "arrow", a pyarrow.Table
# What gives the function that makes the batch, and the format of a data set's rows for it; None: Python's lists.
Routes = dict[str, tuple[Callable[[], Callable[[Rows], Any]], str | None]]


def in_ten_lines(rows: Rows) -> dict[str, torch.Tensor]:
    """What a good NumPy programmer writes: the least that a collator can cost without compiled code."""
    lengths = [len(row["input_ids"]) for row in rows]
    batch = {}
    for name in rows[0]:
        padded = np.zeros((len(rows), max(lengths)), dtype=np.int64)
        for line, row, length in zip(padded, rows, lengths, strict=True):
            line[:length] = row[name]
        batch[name] = torch.from_numpy(padded)
    return batch


def as_tensor(values: Any) -> torch.Tensor:
    return values if isinstance(values, torch.Tensor) else torch.tensor(values, dtype=torch.int64)


def by_pad_sequence(rows: Rows) -> dict[str, torch.Tensor]:
    return {name: pad_sequence([as_tensor(row[name]) for row in rows], batch_first=True) for name in rows[0]}


def by_nested(rows: Rows) -> dict[str, torch.Tensor]:
    nested = {name: torch.nested.nested_tensor([as_tensor(row[name]) for row in rows]) for name in rows[0]}
    return {name: values.to_padded_tensor(0) for name, values in nested.items()}


def by_trl(rows: Rows) -> dict[str, torch.Tensor]:
    return {name: trl.trainer.utils.pad([as_tensor(row[name]) for row in rows], padding_value=0) for name in rows[0]}


def joined(rows: Rows, name: str) -> np.ndarray:
    """The values of a column one after the other."""
    first = rows[0][name]
    if isinstance(first, torch.Tensor):
        return torch.cat([row[name] for row in rows]).numpy()
    if isinstance(first, np.ndarray):
        return np.concatenate([row[name] for row in rows])
    return np.fromiter(itertools.chain.from_iterable(row[name] for row in rows), dtype=np.int64)


def by_awkward(rows: Rows) -> dict[str, torch.Tensor]:
    import awkward as ak

    if isinstance(rows, pa.Table):
        columns = {name: ak.from_arrow(rows[name].combine_chunks()) for name in rows.column_names}
    else:
        lengths = [len(row["input_ids"]) for row in rows]
        columns = {name: ak.unflatten(joined(rows, name), lengths) for name in rows[0]}
    batch = {}
    for name, column in columns.items():
        longest = int(ak.max(ak.num(column)))
        padded = ak.fill_none(ak.pad_none(column, longest, clip=True), 0)
        batch[name] = torch.from_numpy(ak.to_numpy(padded).astype(np.int64, copy=False))
    return batch


def in_arrow(rows: Rows, name: str) -> Any:
    if isinstance(rows, pa.Table):
        return rows[name].combine_chunks()
    return pa.array([np.asarray(row[name]) for row in rows])


def by_pyarrow(rows: Rows) -> dict[str, torch.Tensor]:
    """Arrow's values and offsets, put into place by one masked assignment of NumPy."""
    batch = {}
    for name in rows.column_names if isinstance(rows, pa.Table) else rows[0]:
        column = in_arrow(rows, name)
        lengths = np.diff(column.offsets.to_numpy())
        padded = np.zeros((len(lengths), lengths.max()), dtype=np.int64)
        padded[np.arange(lengths.max()) < lengths[:, None]] = column.flatten().to_numpy()
        batch[name] = torch.from_numpy(padded)
    return batch


def flat(values: np.ndarray, lengths: np.ndarray) -> dict[str, torch.Tensor]:
    starts = np.cumsum(lengths) - lengths
    labels = values.copy()
    labels[starts] = -100
    positions = np.arange(len(values)) - np.repeat(starts, lengths)
    columns = {"input_ids": values, "labels": labels, "position_ids": positions}
    return {name: torch.from_numpy(column[None]) for name, column in columns.items()}


def flat_by_numpy(rows: Rows) -> dict[str, torch.Tensor]:
    lengths = np.array([len(row["input_ids"]) for row in rows])
    return flat(joined(rows, "input_ids").astype(np.int64, copy=False), lengths)


def flat_by_torch(rows: Rows) -> dict[str, torch.Tensor]:
    ids = [as_tensor(row["input_ids"]) for row in rows]
    labels = [torch.cat([row.new_full((1,), -100), row[1:]]) for row in ids]
    positions = [torch.arange(len(row)) for row in ids]
    columns = {"input_ids": ids, "labels": labels, "position_ids": positions}
    return {name: torch.cat(parts)[None] for name, parts in columns.items()}


def flat_by_pyarrow(rows: Rows) -> dict[str, torch.Tensor]:
    column = in_arrow(rows, "input_ids")
    return flat(column.flatten().to_numpy().astype(np.int64), np.diff(column.offsets.to_numpy()))


# The ways of both jobs, in the order of the tables; TRL's and awkward's where they are installed. Collators and the
# tokenizer are made when they are asked for.
ROUTES: dict[str, Routes] = {
    "padding": {
        "transformers": (lambda: pair("DataCollatorWithPadding")[0], None),
        "tokenizer.pad": (lambda: functools.partial(tokenizer().pad, return_tensors="pt"), None),
        **({"TRL's pad": (lambda: by_trl, "torch")} if TRL else {}),
        **({"awkward": (lambda: by_awkward, "arrow")} if AWKWARD else {}),
        "torch nested": (lambda: by_nested, "torch"),
        "pad_sequence": (lambda: by_pad_sequence, "torch"),
        "pyarrow": (lambda: by_pyarrow, "arrow"),
        "NumPy, ten lines": (lambda: in_ten_lines, "numpy"),
        "quadrat": (lambda: pair("DataCollatorWithPadding")[1], None),
    },
    "flattening": {
        "transformers": (lambda: pair("DataCollatorWithFlattening")[0], None),
        "torch.cat": (lambda: flat_by_torch, "torch"),
        "pyarrow": (lambda: flat_by_pyarrow, "arrow"),
        "NumPy, ten lines": (lambda: flat_by_numpy, "numpy"),
        "quadrat": (lambda: pair("DataCollatorWithFlattening")[1], None),
    },
}


@functools.lru_cache(1)
def lists(count: int, longest: int) -> list[dict[str, list[int]]]:
    """Rows of `longest // 8` to `longest` tokens of the corpus, each number an object of its own."""
    lengths = np.random.default_rng(0).integers(max(longest // 8, 1), longest, size=count, endpoint=True)
    lengths[-1] = longest
    stream = np.resize(np.concatenate([np.array(ids) for ids in token_ids()]), int(lengths.sum()))
    parts = np.split(stream, np.cumsum(lengths)[:-1])
    makers = (lambda ids: ids, np.zeros_like, np.ones_like)
    return [{name: make(ids).tolist() for name, make in zip(COLUMNS, makers, strict=True)} for ids in parts]


@functools.lru_cache(1)
def mapped(count: int, longest: int) -> Any:
    """The same rows, memory-mapped and behind an indices mapping."""
    return stored(lists(count, longest)).select(range(count)[::-1]).select(range(count)[::-1])


def call(name: str, collate: Any, form: str | None, kind: str, rows: list[Any]) -> Callable[[], Any]:
    """What makes the batch, from rows in memory or from a data set, whose rows it fetches first."""
    if kind in FORMS:
        features = [{column: FORMS[kind](values) for column, values in row.items()} for row in rows]
        return functools.partial(collate, features)
    source, keys = mapped(len(rows), len(rows[-1]["input_ids"])).select_columns(list(rows[0])), list(range(len(rows)))
    if name == "quadrat":
        data = source if kind == "Dataset" else quadrat.ArrowDataset(source)
        return lambda: collate(data.__getitems__(keys))
    formatted = source.with_format(form)
    if form == "arrow":
        return lambda: collate(formatted[keys])
    return lambda: collate(fetched_by_datasets(formatted, keys))


def cell(job: str, count: int, longest: int, kind: str) -> Job:
    names = COLUMNS if job == "padding" else COLUMNS[:1]
    rows = [{name: row[name] for name in names} for row in lists(count, longest)]
    facts = {"job": job, "input": kind, "rows": count, "longest": longest}
    facts["tokens"] = sum(len(row["input_ids"]) for row in rows)
    routes = {name: ROUTES[job][name] for name in ways_of(job, count, longest, kind)}
    ways = {name: call(name, make(), form, kind, rows) for name, (make, form) in routes.items()}
    return Job(ways, facts, containers=False)


def ways_of(job: str, count: int, longest: int, kind: str) -> tuple[str, ...]:
    # The others know nothing of an ArrowDataset: there the reference reads the data set itself.
    return BOTH if kind == "ArrowDataset" else tuple(ROUTES[job])


def grid(rows: tuple[int, ...], lengths: tuple[int, ...]) -> dict[str, tuple[Any, ...]]:
    cells = itertools.product(("padding",) if OLD else ROUTES, rows, lengths, INPUTS)
    return {f"{job}, {kind}, {count} x {longest}": (job, count, longest, kind) for job, count, longest, kind in cells}


SMALL = grid((1, 32), (64,)) if not OLD else {}
GRID = grid((32,), (512,)) if OLD else SMALL | grid((1, 8, 32, 128), (64, 512, 2048, 8192))
CASES = {name: functools.partial(cell, *of) for name, of in GRID.items()}
test_peers = timed(CASES, lambda case: ways_of(*GRID[case]), small=len(SMALL), least=3, seconds=0.2)
