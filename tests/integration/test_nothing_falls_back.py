"""What quadrat itself makes of rows, given to each collator: the batch is that of plain rows, and none falls back."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import datasets
import pyarrow as pa
import pytest
from torch.utils.data import DataLoader
from transformers import set_seed

import quadrat
from support import samples
from support.compare import assert_same_batch
from support.others import OTHERS, TRL


class FellBackError(AssertionError):
    """A batch was made by the reference."""


class _Raising(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if "fell back" in (message := record.getMessage()):
            raise FellBackError(message)


@contextlib.contextmanager
def nothing_falls_back() -> Iterator[None]:
    """Raises FellBackError where a collator falls back. Collators say so once: use new ones."""
    logger, handler = logging.getLogger("quadrat"), _Raising()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


NAMES = [*samples.CLASSES, *TRL]


def rows_of(name: str) -> list[dict[str, Any]]:
    """From long to short, as a stream sorts them."""
    rows = OTHERS[name].batch() if name in TRL else samples.batch(name)
    return sorted(rows, key=lambda row: -len(next(iter(row.values()))))


def collator_of(name: str, **options: Any) -> Any:
    """A new one, that has not said yet that it falls back."""
    return OTHERS[name].ours() if name in TRL else samples.make(quadrat, name, **options)


def twice(name: str, rows: Callable[[], Any], **options: Any) -> list[Any]:
    """A batch of a kind that is new to the collator, and one of a kind that it knows."""
    collator = collator_of(name, **options)
    set_seed(0)
    return [collator(rows()) for _ in range(2)]


def stored(rows: Any) -> datasets.Dataset:
    return datasets.Dataset.from_list(rows)


def stream(rows: Any, **options: Any) -> quadrat.BatchedStream:
    column = next(iter(rows[0]))
    return quadrat.BatchedStream(rows, 10_000, column=column, shuffle=False, **options)


def patched(rows: Any) -> Any:
    dataset = stored(rows)
    with quadrat.data.patch_datasets():
        return dataset.__getitems__(range(len(rows)))


def read(rows: Any) -> Any:
    """Rows whose dicts somebody has looked at."""
    batch = quadrat.ArrowDataset(stored(rows)).__getitems__(range(len(rows)))
    assert batch[0]
    return batch


def batches(rows: Any) -> list[list[int]]:
    return [list(range(len(rows)))]


# What quadrat makes of rows, as a collator gets it.
MADE = {
    "plain rows": list,
    "a batch of a stream": lambda rows: next(iter(stream(rows))),
    "a list of a batch of a stream": lambda rows: list(stream(rows)),
    "a batch of a stream of datasets": lambda rows: next(iter(stream(list(stored(rows).to_iterable_dataset())))),
    "a batch of a stream, with columns": lambda rows: next(iter(stream(rows, columns=list(rows[0])))),
    "a batch of a list": lambda rows: quadrat.data.BatchedDataset(rows, batches(rows))[0],
    "a list of a batch of a list": lambda rows: [quadrat.data.BatchedDataset(rows, batches(rows))[0]],
    "a batch of a Dataset": lambda rows: quadrat.data.BatchedDataset(stored(rows), batches(rows))[0],
    "a list of a batch of a Dataset": lambda rows: [quadrat.data.BatchedDataset(stored(rows), batches(rows))[0]],
    "rows of an ArrowDataset": lambda rows: quadrat.ArrowDataset(stored(rows)).__getitems__(range(len(rows))),
    "a slice of such rows": lambda rows: quadrat.ArrowDataset(stored([*rows, *rows])).__getitems__(
        range(2 * len(rows))
    )[: len(rows)],
    "such rows, once read": read,
    "rows of a patched Dataset": patched,
    "a Dataset's columns": lambda rows: stored(rows)[:],
    "a table": pa.Table.from_pylist,
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("name", NAMES)
def test_rows(name, made):
    if name == "DataCollatorForMultipleChoice" and "of a stream" in made:
        with pytest.raises(TypeError, match="for the choices of multiple choice"):  # a stream cannot measure them
            MADE[made](rows_of(name))
        return
    expected = twice(name, lambda: rows_of(name))
    with nothing_falls_back():
        got = twice(name, lambda: MADE[made](rows_of(name)))
    for batch, other in zip(expected, got, strict=True):
        assert_same_batch(batch, other)


def packs(kind: str, rows: Any) -> Any:
    """Packs of these rows: a list of them, as a DataLoader gives it."""
    if kind == "stream":
        return list(quadrat.data.PackedStream(rows, 8, shuffle=False))
    dataset = quadrat.PackedDataset(stored(rows) if kind == "Dataset" else rows, 8, shuffle=False)
    return dataset.__getitems__(range(len(dataset)))


# They join rows, or pad `seq_lengths` like other columns.
TAKES_PACKS = {"DataCollatorWithFlattening": {}} | {
    name: {"pad_values": {"seq_lengths": 0}}
    for name in ("DataCollatorForLanguageModeling", "DataCollatorForTokenClassification", "DataCollatorWithPadding")
}


@pytest.mark.parametrize("kind", ["list", "Dataset", "stream"])
@pytest.mark.parametrize("name", TAKES_PACKS)
def test_packs(name, kind):
    rows = [{key: value for key, value in row.items() if type(value) is list} for row in samples.batch(name)]
    with nothing_falls_back():
        for batch in twice(name, lambda: packs(kind, rows), **TAKES_PACKS[name]):
            assert len(batch)


def test_ragged():
    ragged = quadrat.Ragged.from_rows([[5, 6, 7], [8]])
    with nothing_falls_back():
        for name in ("DataCollatorForLanguageModeling", "DataCollatorWithFlattening", "DataCollatorWithPadding"):
            twice(name, lambda: ragged)


def test_a_loader_of_batches():
    with nothing_falls_back():
        collator = collator_of("DataCollatorWithPadding")
        for batch in DataLoader(stream(rows_of("DataCollatorWithPadding")), batch_size=None, collate_fn=collator):
            assert_same_batch(collator(rows_of("DataCollatorWithPadding")), batch)


def test_known_batches_of_a_stream_are_not_looked_at_again(monkeypatch):
    """As lists are: an item that is a whole batch, alone and as the one item that a DataLoader gives."""
    rows = [{"input_ids": [5] * (1 + n % 7)} for n in range(40)]
    collator = collator_of("DataCollatorWithPadding")
    batches = list(quadrat.BatchedStream(rows, 32))
    expected = [collator(list(batch)) for batch in batches]
    monkeypatch.setattr(quadrat.DataCollatorWithPadding, "_collate_anew", None)
    for items in (batches, [[batch] for batch in batches]):
        for batch, collated in zip(items, expected, strict=True):
            assert_same_batch(collated, collator(batch))


def test_falling_back_is_noticed():
    Own = type("Own", (list,), {})  # noqa: N806 - it may give its rows in a way of its own
    with pytest.raises(FellBackError, match="fell back"), nothing_falls_back():
        collator_of("DataCollatorWithPadding")(Own(rows_of("DataCollatorWithPadding")))
