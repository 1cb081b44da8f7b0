"""What quadrat puts in the place of other code, at sizes from 1 to 512: nothing may be slower than what it replaces.

Containers of evaluations, lengths, `tokenizer_pad`, streams, access to datasets, code that reads rows itself, and
collators made for each batch, in one process and one thread. Both results are compared first; then both are timed
alternately, and the ratio is that of the median times. Prints a table and writes JSON. The status is 1 if a ratio is
below 0.95, unless the difference is less than a microsecond.
"""

import argparse
import copy
import gc
import itertools
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch
import transformers
from datasets.iterable_dataset import ArrowExamplesIterable
from rich import box
from rich.progress import track
from rich.table import Table
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import IterableDataset
from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast
from transformers.trainer_pt_utils import EvalLoopContainer, nested_concat

import quadrat
from measure import machine, rounded, terminal

RESULTS = Path(__file__).parent / "results" / "never_slower.json"
SIZES = (1, 2, 8, 32, 128, 512)
STREAMED = 1024  # rows of a stream; the size is that of its batches
LEAST = 0.95
NOTHING = 1000  # nanoseconds
TURN = 200_000  # nanoseconds of a turn, about: short ones, so that other processes seldom fall into one

Call = Callable[[], Any]


class Pair(NamedTuple):
    """Two ways to one result. `patch`: what makes the first way quadrat's, where `ours` is None."""

    name: str
    size: int
    theirs: Call
    ours: Call | None = None
    patch: Callable[[], Any] | None = None


def plain(value: Any) -> Any:
    """A result in a form that `==` compares whole, types and dtypes included."""
    if isinstance(value, torch.Tensor):
        return "tensor", str(value.dtype), value.tolist()
    if isinstance(value, np.ndarray):
        return "array", str(value.dtype), value.tolist()
    if hasattr(value, "keys"):
        return {key: plain(value[key]) for key in value}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "cat": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
    made.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
    return made


def rows_of(size: int) -> list[dict[str, list[int]]]:
    lengths = np.random.default_rng(size).integers(1, 48, size).tolist()
    return [{"input_ids": [2] * length, "attention_mask": [1] * length} for length in lengths]


def evaluated(make: Callable[[], Any], batch: Any, steps: int, every: int | None) -> Any:
    container = make()
    for step in range(1, steps + 1):
        container.add(batch)
        if every is not None and step % every == 0:
            container.to_cpu_and_numpy()
    return container.get_arrays()


def evaluations() -> Iterator[Pair]:
    kinds = {
        "logits": torch.zeros(8, 2),
        "losses": torch.zeros(8),
        "logits and losses": (torch.zeros(8, 2), torch.zeros(8)),
        "tokens": torch.zeros(8, 64, 4),
    }
    for name, batch in kinds.items():
        for every in (None, 10):
            for size in SIZES:
                yield Pair(
                    f"evaluation, {name}" + (f", moved every {every}" if every else ""),
                    size,
                    lambda batch=batch, size=size, every=every: evaluated(EvalLoopContainer, batch, size, every),
                    lambda batch=batch, size=size, every=every: evaluated(
                        quadrat.EvalLoopContainer, batch, size, every
                    ),
                )
    for size in SIZES:
        two = [torch.zeros(size, 2), torch.ones(size, 2)]
        yield Pair(
            "concat_padded of two",
            size,
            lambda two=two: nested_concat(*two),
            lambda two=two: quadrat.concat_padded(two),
        )


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


def lengths() -> Iterator[Pair]:
    for size in SIZES:
        rows = rows_of(size)
        data = Rows(rows)
        column = pa.array([row["input_ids"] for row in rows])
        table = pa.table({"input_ids": column})
        yield Pair(
            "lengths, list of dicts",
            size,
            lambda rows=rows: np.array([len(row["input_ids"]) for row in rows]),
            lambda rows=rows: quadrat.lengths(rows),
        )
        yield Pair(
            "lengths, torch dataset",
            size,
            lambda data=data: np.array([len(data[i]["input_ids"]) for i in range(len(data))]),
            lambda data=data: quadrat.lengths(data),
        )
        yield Pair(
            "lengths, Arrow",
            size,
            lambda table=table: pyarrow.compute.list_value_length(table["input_ids"]).to_numpy().astype(np.int64),
            lambda table=table: quadrat.lengths(table),
        )


def padding() -> Iterator[Pair]:
    tok = tokenizer()
    for size in SIZES:
        rows = rows_of(size)
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        texts = [" ".join(["cat"] * len(row["input_ids"])) for row in rows]
        for what, given in (("rows", rows), ("columns", columns)):
            for framework in (None, "pt", "np"):
                yield Pair(
                    f"tokenizer_pad, {what}, {framework or 'lists'}",
                    size,
                    lambda given=given, framework=framework: tok.pad(copy.copy(given), return_tensors=framework),
                    lambda given=given, framework=framework: quadrat.tokenizers.tokenizer_pad(
                        tok, copy.copy(given), return_tensors=framework
                    ),
                )
        for framework in (None, "pt"):
            yield Pair(
                f"tokenizer(padding=True), {framework or 'lists'}",
                size,
                lambda texts=texts, framework=framework: tok(texts, padding=True, return_tensors=framework),
                patch=quadrat.patch_tokenizers,
            )


def streams() -> Iterator[Pair]:
    tok = tokenizer()
    theirs, ours = DataCollatorWithPadding(tok), quadrat.DataCollatorWithPadding(tok)
    rows = [{"input_ids": [2] * 40, "attention_mask": [1] * 40} for _ in range(STREAMED)]
    kinds = {
        "a torch IterableDataset": Stream(rows),
        "a datasets IterableDataset": datasets.Dataset.from_list(rows).to_iterable_dataset(),
    }
    for size in SIZES:
        for kind, stream in kinds.items():
            batched = quadrat.BatchedStream(stream, max_tokens=40 * size, window=512)
            packed = quadrat.PackedStream(stream, max_length=40 * size, window=512)

            def plainly(stream: Any = stream, size: int = size) -> Iterator[Any]:
                batch = []
                for row in stream:
                    batch.append(row)
                    if len(batch) == size:
                        yield theirs(batch)
                        batch = []

            yield Pair(
                f"BatchedStream over {kind}, collated",
                size,
                lambda plainly=plainly: sum(batch["input_ids"].numel() for batch in plainly()),
                lambda batched=batched: sum(ours(batch)["input_ids"].numel() for batch in batched),
            )
            yield Pair(
                f"PackedStream over {kind}",
                size,
                lambda plainly=plainly: sum(batch["input_ids"].numel() for batch in plainly()),
                lambda packed=packed: sum(len(pack["input_ids"]) for pack in packed),
            )


def access() -> Iterator[Pair]:
    for size in SIZES:
        made = datasets.Dataset.from_list(rows_of(size))
        for name in (None, "numpy", "torch"):
            data = made.with_format(name)
            kind = name or "no format"
            patch = quadrat.patch_datasets
            everything = list(range(size))
            yield Pair(f"dataset[i], {kind}", size, lambda data=data: data[len(data) - 1], patch=patch)
            yield Pair(f"iteration, {kind}", size, lambda data=data: list(data), patch=patch)
            yield Pair(
                f"__getitems__, {kind}",
                size,
                lambda data=data, everything=everything: list(data.__getitems__(everything)),
                patch=patch,
            )


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
    """What an own collate function does: it reads all values."""
    return [value for row in rows for value in row.values()]


def batched(rows: Any, size: int) -> Iterator[list[Any]]:
    iterator = iter(rows)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def stream_of(table: pa.Table, rows: int, features: Any) -> Any:
    """A stream of tables of so many rows."""
    tables = [(at, table.slice(at, rows)) for at in range(0, len(table), rows)]
    examples = ArrowExamplesIterable(lambda numbers: iter(tables), {"numbers": [0]})
    return datasets.IterableDataset(examples, info=datasets.DatasetInfo(features=features))


def own_code() -> Iterator[Pair]:
    """Code that reads rows itself, by batches."""
    patch = quadrat.patch_datasets
    for name, column in COLUMNS.items():
        data = datasets.Dataset.from_list([column(row) for row in range(SIZES[-1])])
        shuffled, table, features = data.shuffle(seed=0), data.data.table, data.features
        streams = {
            "a stream": data.to_iterable_dataset(num_shards=4),
            "a stream without features": stream_of(table, 64, None),
            "a stream of tables of two rows": stream_of(table, 2, features),
            "interleaved streams": datasets.interleave_datasets([stream_of(table, 64, features)] * 2),
        }
        streams["a shuffled stream"] = streams["a stream"].shuffle(seed=0, buffer_size=100)
        for size in SIZES:
            for kind, given in (("a dataset", data), ("a shuffled dataset", shuffled)):
                keys = list(range(size))
                yield Pair(
                    f"own code, {name}, {kind}",
                    size,
                    lambda given=given, keys=keys: touched(given.__getitems__(keys)),
                    patch=patch,
                )
            for kind, stream in streams.items():
                yield Pair(
                    f"own code, {name}, {kind}",
                    size,
                    lambda stream=stream, size=size: [touched(batch) for batch in batched(stream, size)],
                    patch=patch,
                )


def made_anew() -> Iterator[Pair]:
    """Collators that collate one batch."""
    tok = tokenizer()
    makes: dict[str, Callable[[Any], Any]] = {
        "DataCollatorWithPadding": lambda home: home.DataCollatorWithPadding(tok),
        "DataCollatorForSeq2Seq": lambda home: home.DataCollatorForSeq2Seq(tok),
        "DataCollatorForTokenClassification": lambda home: home.DataCollatorForTokenClassification(tok),
        "DataCollatorForLanguageModeling": lambda home: home.DataCollatorForLanguageModeling(tok, mlm=False),
        "DataCollatorWithFlattening": lambda home: home.DataCollatorWithFlattening(),
    }
    for name, make in makes.items():
        for size in SIZES:
            labels = name not in ("DataCollatorWithPadding", "DataCollatorForLanguageModeling")
            rows = [row | ({"labels": row["input_ids"]} if labels else {}) for row in rows_of(size)]
            yield Pair(
                f"{name}, made for each batch",
                size,
                lambda make=make, rows=rows: make(transformers)([*map(dict, rows)]),
                lambda make=make, rows=rows: make(quadrat)([*map(dict, rows)]),
            )


def timed(call: Call, times: int) -> float:
    start = perf_counter_ns()
    for _ in range(times):
        call()
    return (perf_counter_ns() - start) / times


def measured(pair: Pair, turns: int) -> tuple[float, bool]:
    """Time both ways alternately. The ratio of their median times, and whether that is a loss."""

    def ours(times: int) -> float:
        if pair.patch is None:
            return timed(pair.ours, times)  # type: ignore[arg-type]
        with pair.patch():
            pair.theirs()  # what is looked up anew after a patch
            return timed(pair.theirs, times)

    times = max(1, int(TURN / max(timed(pair.theirs, 1), timed(pair.theirs, 1), 1)))
    taken = []
    gc.disable()
    try:
        for _ in range(turns):
            taken.append((timed(pair.theirs, times), ours(times)))
    finally:
        gc.enable()
    one, two = map(statistics.median, zip(*taken, strict=True))
    return one / two, one / two < LEAST and two - one > NOTHING


def check(pair: Pair) -> None:
    expected = plain(pair.theirs())
    if pair.patch is None:
        found = plain(pair.ours())  # type: ignore[misc]
    else:
        with pair.patch():
            found = plain(pair.theirs())
    if expected != found:
        raise AssertionError(f"{pair.name}, {pair.size}: results differ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=51)
    parser.add_argument("--only", default="", help="part of the names of what is measured")
    options = parser.parse_args()
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    made = (evaluations, lengths, padding, streams, access, own_code, made_anew)
    pairs = [pair for make in made for pair in make() if options.only in pair.name]
    found: dict[str, dict[int, float]] = {}
    slower = []
    for pair in track(pairs, disable=not sys.stdout.isatty()):
        check(pair)
        ratio, loses = measured(pair, options.turns)
        if loses:  # once more, for longer: another process may have run
            ratio, loses = measured(pair, 3 * options.turns)
        found.setdefault(pair.name, {})[pair.size] = ratio
        if loses:
            slower.append(f"{pair.name}, {pair.size}: {ratio:.2f}")
    table = Table("time without quadrat / with it", *map(str, SIZES), box=box.SIMPLE)
    for name, ratios in found.items():
        table.add_row(name, *(f"{ratios[size]:.2f}" for size in SIZES))
    terminal().print(table)
    if not options.only:
        RESULTS.write_text(json.dumps(rounded({"machine": machine(), "ratios": found}), indent=1) + "\n")
    for line in slower:
        print("slower:", line)
    return bool(slower)


if __name__ == "__main__":
    sys.exit(main())
