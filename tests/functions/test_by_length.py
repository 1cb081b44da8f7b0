"""by_length and map_by_length: rows of any form, streams in windows, and what bad input is told."""

import re

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
from tokenizers.pre_tokenizers import Whitespace

import quadrat
from quadrat.batching import by_length, map_by_length
from quadrat.support.progress import NoBar
from support.numbered import pad, rows_of
from support.strategies import make_tokenizer

LENGTHS = [1 + 7 * row % 23 for row in range(30)]


TABLE = {"input_ids": [row["input_ids"] for row in rows_of(LENGTHS)], "kind": [row % 3 for row in range(30)]}
SOURCES = {
    "list": lambda: [{"input_ids": ids, "kind": kind} for ids, kind in zip(*TABLE.values(), strict=True)],
    "dataset": lambda: datasets.Dataset.from_dict(TABLE),
    "shuffled dataset": lambda: datasets.Dataset.from_dict(
        {name: column[::-1] for name, column in TABLE.items()}
    ).select(range(29, -1, -1)),
    "columns": lambda: TABLE,
    "table": lambda: pa.table(TABLE),
    "torch dataset": lambda: torch.utils.data.Subset(SOURCES["list"](), range(30)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_rows_of_any_form(source):
    """Of columns, too, a collator reads the rows of a batch alone."""
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    output = map_by_length(lambda batch: batch["input_ids"][:, 0] + batch["kind"], SOURCES[source](), collator=collator)
    assert output.tolist() == [1 + row + row % 3 for row in range(30)]


def test_rows_without_names():
    ragged = quadrat.Ragged.from_rows(TABLE["input_ids"])
    output = map_by_length(lambda batch: batch[:, 0], ragged, collator=quadrat.pad, max_tokens=50)
    assert output.tolist() == list(range(1, 31))
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    for rows in (ragged, pa.array(TABLE["input_ids"]), np.arange(1, 61).reshape(30, 2)[:, [0, 0]] // 2 + 1):
        output = map_by_length(lambda batch: batch["input_ids"][:, 0], rows, collator=collator)
        assert output.tolist() == list(range(1, 31))


def test_joined_rows_count_without_padding():
    batches = by_length(rows_of([9, 1, 1, 1]), collator=quadrat.DataCollatorWithFlattening(), max_tokens=12)
    assert [batch["input_ids"].shape for _, batch in batches] == [(1, 12)]


@pytest.mark.parametrize("form", [list, iter])
@pytest.mark.parametrize("limit", [12, int(1e30)])
def test_texts_are_tokenised_once_in_order(form, limit, monkeypatch):
    monkeypatch.setattr("quadrat.batching.any_loop._AT_A_TIME", 7)
    tokenizer = make_tokenizer(model_max_length=limit)
    tokenizer.backend_tokenizer.pre_tokenizer = Whitespace()
    seen = []

    class Counting:
        model_max_length = limit

        def __call__(self, texts, **options):
            seen.extend(texts)
            return tokenizer(texts, **options)

        def __getattr__(self, name):
            return getattr(tokenizer, name)

    texts = [" ".join(f"w{3 + row}" for _ in range(length)) for row, length in enumerate(LENGTHS)]
    options = {"collator": quadrat.DataCollatorWithPadding(tokenizer), "tokenizer": Counting()}
    output = map_by_length(lambda batch: batch["attention_mask"].sum(1), form(texts), **options)
    assert [int(tokens) for tokens in output] == [min(length, limit) for length in LENGTHS]
    assert seen == texts
    pairs = [(text, "w3 w4") for text in texts[:5]]
    output = map_by_length(lambda batch: batch["attention_mask"].sum(1), pairs, tokenizer=tokenizer)
    assert output.tolist() == [min(length + 2, limit) for length in LENGTHS[:5]]


class Held(dict):
    """A row that counts how many there are."""

    now = most = 0

    def __init__(self, **columns):
        super().__init__(**columns)
        Held.now += 1
        Held.most = max(Held.now, Held.most)

    def __del__(self):
        Held.now -= 1


@pytest.mark.parametrize("count", [5_000, pytest.param(10**6, marks=pytest.mark.slow)])
def test_rows_held_are_those_of_a_window(count):
    Held.now = Held.most = 0
    rows = (Held(input_ids=[row, *[1] * (row % 7)]) for row in range(count))
    results = map_by_length(lambda ids: ids[:, 0], rows, collator=pad, window=500)
    assert sum(int(row) == number for number, row in enumerate(results)) == count
    assert Held.most <= 501


def test_an_endless_generator_and_a_first_result():
    read = []

    def rows():
        while True:
            read.append(1)
            yield {"input_ids": [len(read)] * (len(read) % 5 + 1)}

    results = map_by_length(lambda ids: ids[:, 0], rows(), collator=pad, window=10)
    assert [next(results) for _ in range(3)] == [1, 2, 3]
    assert len(read) == 10
    assert [next(results) for _ in range(8)] == list(range(4, 12))
    assert len(read) == 20


def test_streams_of_datasets_and_torch():
    rows = datasets.Dataset.from_list(rows_of(LENGTHS)).to_iterable_dataset()

    class Sized(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(rows_of(LENGTHS))

        def __len__(self):
            return 30

    for source in (rows, Sized(), iter([])):
        output = list(map_by_length(lambda ids: ids[:, 0], source, collator=pad, window=7))
        assert output == (list(range(1, 31)) if source in (rows,) or isinstance(source, Sized) else [])


def test_gradients_flow_back():
    weight = torch.ones(1, requires_grad=True)
    output = map_by_length(lambda ids: torch.from_numpy(ids).sum(1) * weight, rows_of(LENGTHS), collator=pad)
    output.sum().backward()
    assert weight.grad == sum(map(sum, TABLE["input_ids"]))


def test_dtypes_and_widths_of_batches_may_differ():
    def function(ids):
        return ids.astype(np.int32 if len(ids) % 2 else np.float64)

    output = map_by_length(function, rows_of([3, 2, 2, 1]), collator=pad, max_tokens=4, padding_value=-1)
    assert output.dtype == np.float64
    assert output.tolist() == [[1, 7, 7], [2, 7, -1], [3, 7, -1], [4, -1, -1]]


def fails(ids):
    raise ZeroDivisionError(f"{len(ids)} rows")


FEW = rows_of([2, 5, 3, 1])


def called(function, rows=FEW, **options):
    return map_by_length(function, rows, **{"collator": pad, "max_tokens": 6, **options})


def planned(rows=FEW, **options):
    return by_length(rows, **({"collator": pad} | options))


# What is given, the error, its text.
BAD = {
    "an iterator": (TypeError, r"give list\(rows\), or", lambda: planned(iter([]))),
    "no rows": (ValueError, "there are no rows to batch", lambda: called(len, [])),
    "one text": (TypeError, "give a list of texts", lambda: planned("text", tokenizer=make_tokenizer())),
    "no collator": (TypeError, "not NoneType: give one, or a tokenizer", lambda: by_length(FEW)),
    "no tokens": (ValueError, "row 2 has no tokens", lambda: planned([*rows_of([3, 1]), {"input_ids": []}])),
    "a null": (TypeError, "row 1 is a NoneType, and", lambda: planned(["w3", None], tokenizer=make_tokenizer())),
    "another name": (
        *(TypeError, r"map_by_length\(\) got .* 'batch_size': did you mean max_batch_size\?"),
        lambda: called(len, batch_size=8),
    ),
    "another name, of a stream": (TypeError, "did you mean max_tokens", lambda: called(len, iter(FEW), maxtokens=8)),
    "a budget below a row": (
        *(ValueError, "row 1 has 5 tokens, more than max_tokens=4 allow"),
        lambda: planned(max_tokens=4, overlong="error"),
    ),
    "a budget of nothing": (ValueError, "max_tokens", lambda: planned(max_tokens=0)),
    "lengths of others": (ValueError, "there are 2 lengths for 4 rows", lambda: planned(lengths=[1, 2])),
    "lengths of a stream": (TypeError, r"give list\(rows\)", lambda: called(len, iter(FEW), lengths=[1])),
    "too few rows": (
        *(ValueError, "output has 1 rows for a batch of 2, rows 2, 0: give one for each"),
        lambda: called(lambda ids: ids[:1]),
    ),
    "a number": (TypeError, r"output\['n'\] is a int for row 1, and has no rows", lambda: called(lambda ids: {"n": 3})),
    "nothing": (TypeError, "output is a NoneType for row 1", lambda: called(lambda ids: None)),
    "a sum": (TypeError, "output is a Tensor for row 1", lambda: called(lambda ids: torch.tensor(1))),
    "two structures": (
        *(TypeError, r"output is a dict of \['a'\] for rows 2, 0, and a list for row 1"),
        lambda: called(lambda ids: [1] if len(ids) < 2 else {"a": 1}),
    ),
    "two shapes": (
        *(ValueError, r"output\[0\] has the shape \(2, 2, 3\) for rows 2, 0, and \(1, 1, 5\) for row 1"),
        lambda: called(lambda ids: (np.ones((len(ids), *ids.shape)),)),
    ),
    "padding of flags": (
        *(ValueError, r"output\['flags'\] has batches of several widths, and padding_value=-100 is not one of bool"),
        lambda: called(lambda ids: {"flags": torch.from_numpy(ids) > 0}),
    ),
    "padding of small numbers": (
        *(ValueError, "padding_value=nan is not one of uint8: give another one"),
        lambda: called(lambda ids: ids.astype(np.uint8), padding_value=float("nan")),
    ),
    **{
        f"padding {value!r} of {dtype}": (
            *(ValueError, f"padding_value={value!r} is not one of {dtype}: give another one"),
            lambda value=value, dtype=dtype: called(
                lambda ids: torch.from_numpy(ids).to(getattr(torch, dtype)), padding_value=value
            ),
        )
        for value, dtype in [(1e6, "float16"), (-100, "float8_e4m3fn"), (None, "float32"), (1001, "bfloat16")]
    },
    "padding beyond an array": (
        *(ValueError, "padding_value=1000000.0 is not one of float16"),
        lambda: called(lambda ids: ids.astype(np.float16), padding_value=1e6),
    ),
    "a masked array": (
        *(TypeError, "output would lose the mask of a masked array"),
        lambda: called(lambda ids: np.ma.array(ids, mask=ids > 0)),
    ),
    "a sparse tensor": (
        *(TypeError, r"output is a tensor of layout torch.sparse_coo for row 1: give its to_dense\(\)"),
        lambda: called(lambda ids: torch.from_numpy(ids).to_sparse()),
    ),
    "outputs left out": (ValueError, "2 outputs for 3 batches", lambda: planned(max_tokens=6).restore([[1], [2]])),
    "no processes": (RuntimeError, "init_process_group first", lambda: called(len, world_size=2)),
    "no such rank": (ValueError, "rank", lambda: planned(world_size=2, rank=2)),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    error, text, call = BAD[case]
    with pytest.raises(error, match=text):
        call()


def test_errors_name_the_rows_of_the_batch():
    with pytest.raises(ZeroDivisionError, match="1 rows") as error:
        called(fails)
    assert "quadrat: the batch has row 1" in notes(error.value)
    with pytest.raises(ZeroDivisionError, match="3 rows") as error:
        by_length(FEW, collator=fails, max_tokens=9).restore(
            batch for _, batch in by_length(FEW, collator=fails, max_tokens=15)
        )
    assert "quadrat: the batch has rows 1, 2, 0" in notes(error.value)


def stops(_):
    raise StopIteration


@pytest.mark.parametrize("options", [{"function": stops}, {"collator": stops}])
def test_what_would_end_an_iteration_is_an_error(options):
    """A StopIteration of the user's functions does not leave out rows."""
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(called(rows=iter(FEW), **{"function": len, **options}))
    if "collator" in options:
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            list(planned(**options))


def test_an_iterator_ends_with_an_error():
    results = called(lambda ids: ids[:, 0], iter([*FEW, {"input_ids": []}, *FEW]), window=4)
    assert [next(results) for _ in FEW] == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="row 0 has no tokens") as error:
        next(results)
    assert "rows are counted from row 4" in notes(error.value)
    assert list(results) == []


def test_rows_that_were_read_before_an_error_come_first():
    def rows():
        yield from FEW
        raise OSError("the disk is gone")

    results = called(lambda ids: ids[:, 0], rows(), window=3)
    assert [next(results) for _ in FEW] == [1, 2, 3, 4]
    with pytest.raises(OSError, match="the disk is gone"):
        next(results)


def notes(error):
    return re.sub(r"\s+", " ", " ".join([str(error), *getattr(error, "__notes__", [])]))


@pytest.mark.parametrize(("budget", "shown"), [(20, [30]), (10**6, [])], ids=["batches", "one batch"])
def test_a_progress_bar_counts_rows(budget, shown, monkeypatch):
    bars, counted = [], []

    class Bar(NoBar):
        def update(self, rows):
            counted.append(rows)

    monkeypatch.setattr("quadrat.batching.any_loop.progress_bar", lambda rows, what: bars.append(rows) or Bar())
    called(lambda ids: ids[:, 0], rows_of(LENGTHS), max_tokens=budget)
    assert bars == shown
    assert sum(counted) == sum(shown)
