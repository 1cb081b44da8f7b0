"""Other ways of making the same batch, each as a user would write it; peers.py times them and quadrat.

Two jobs. "padding": rows of `input_ids`, `token_type_ids` and `attention_mask` become int64 tensors [rows, longest],
padded with 0. "flattening": rows of `input_ids` become one row without padding, with position ids and labels. A way
takes the rows in the form that suits it best, where a data set can give them in several.
"""

import importlib.util
import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import transformers
from torch.nn.utils.rnn import pad_sequence

import quadrat
from cases import tokenizer

COLUMNS = ("input_ids", "token_type_ids", "attention_mask")
INPUTS = ("lists", "NumPy arrays", "torch tensors", "Dataset", "ArrowDataset")

Rows = Any  # a list of dicts of lists, arrays or tensors; with `form="arrow"`, a pyarrow.Table


@dataclass(frozen=True)
class Route:
    """One way to make the batch."""

    name: str
    collate: Callable[[Rows], Any]
    form: str | None = None  # the format in which it takes the rows of a data set; None: Python's lists
    inputs: tuple[str, ...] = INPUTS[:4]


# --- padding ----------------------------------------------------------------------------------------------------------


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
    from trl.trainer.utils import pad

    return {name: pad([as_tensor(row[name]) for row in rows], padding_value=0) for name in rows[0]}


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


def by_pyarrow(rows: Rows) -> dict[str, torch.Tensor]:
    """Arrow's values and offsets, put into place by one masked assignment of NumPy."""
    if isinstance(rows, pa.Table):
        columns = {name: rows[name].combine_chunks() for name in rows.column_names}
    else:
        columns = {name: pa.array([np.asarray(row[name]) for row in rows]) for name in rows[0]}
    batch = {}
    for name, column in columns.items():
        lengths = np.diff(column.offsets.to_numpy())
        padded = np.zeros((len(lengths), lengths.max()), dtype=np.int64)
        padded[np.arange(lengths.max()) < lengths[:, None]] = column.flatten().to_numpy()
        batch[name] = torch.from_numpy(padded)
    return batch


def padding() -> list[Route]:
    """The first is the reference, the last is quadrat."""
    tokens = tokenizer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trl = [Route("TRL's pad", by_trl, "torch")] if importlib.util.find_spec("trl") else []
    awkward = [Route("awkward", by_awkward, "arrow")] if importlib.util.find_spec("awkward") else []
    return [
        Route("transformers", transformers.DataCollatorWithPadding(tokens)),
        Route("tokenizer.pad", lambda rows: tokens.pad(rows, return_tensors="pt")),
        *trl,
        *awkward,
        Route("torch nested", by_nested, "torch"),
        Route("pad_sequence", by_pad_sequence, "torch"),
        Route("pyarrow", by_pyarrow, "arrow"),
        Route("NumPy, ten lines", in_ten_lines, "numpy"),
        Route("quadrat", quadrat.DataCollatorWithPadding(tokens), inputs=INPUTS),
    ]


# --- flattening -------------------------------------------------------------------------------------------------------


def flat_by_numpy(rows: Rows) -> dict[str, torch.Tensor]:
    lengths = np.array([len(row["input_ids"]) for row in rows])
    starts = np.cumsum(lengths) - lengths
    values = joined(rows, "input_ids").astype(np.int64, copy=False)
    labels = values.copy()
    labels[starts] = -100
    positions = np.arange(len(values)) - np.repeat(starts, lengths)
    made = {"input_ids": values, "labels": labels, "position_ids": positions}
    return {name: torch.from_numpy(column[None]) for name, column in made.items()}


def flat_by_torch(rows: Rows) -> dict[str, torch.Tensor]:
    ids = [as_tensor(row["input_ids"]) for row in rows]
    labels = [torch.cat([one.new_full((1,), -100), one[1:]]) for one in ids]
    positions = [torch.arange(len(one)) for one in ids]
    made = {"input_ids": ids, "labels": labels, "position_ids": positions}
    return {name: torch.cat(parts)[None] for name, parts in made.items()}


def flat_by_pyarrow(rows: Rows) -> dict[str, torch.Tensor]:
    if isinstance(rows, pa.Table):
        column = rows["input_ids"].combine_chunks()
    else:
        column = pa.array([np.asarray(row["input_ids"]) for row in rows])
    starts, lengths = column.offsets.to_numpy()[:-1], np.diff(column.offsets.to_numpy())
    values = column.flatten().to_numpy().astype(np.int64)
    labels = values.copy()
    labels[starts] = -100
    positions = np.arange(len(values)) - np.repeat(starts, lengths)
    made = {"input_ids": values, "labels": labels, "position_ids": positions}
    return {name: torch.from_numpy(column[None]) for name, column in made.items()}


def flattening() -> list[Route]:
    """The first is the reference, the last is quadrat."""
    return [
        Route("transformers", transformers.DataCollatorWithFlattening()),
        Route("torch.cat", flat_by_torch, "torch"),
        Route("pyarrow", flat_by_pyarrow, "arrow"),
        Route("NumPy, ten lines", flat_by_numpy, "numpy"),
        Route("quadrat", quadrat.DataCollatorWithFlattening(), inputs=INPUTS),
    ]


JOBS: dict[str, Callable[[], list[Route]]] = {"padding": padding, "flattening": flattening}
