"""quadrat.PackedDataset, and collators that read packs: what the docstrings promise."""

import copy
import pickle
from itertools import pairwise
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from transformers import BertLMHeadModel

import quadrat
from support.compare import assert_same_batch
from support.strategies import make_tokenizer
from support.trainer import arguments, trained


def rows_of(lengths):
    """Tokens that tell row and place."""
    return [
        {"input_ids": [1000 * row + i for i in range(n)], "labels": [i % 7 for i in range(n)], "weights": [0.5] * n}
        for row, n in enumerate(lengths)
    ]


LENGTHS = np.random.default_rng(0).integers(0, 30, 50).tolist()
ROWS = rows_of(LENGTHS)
KINDS = {
    "list": list,
    "dataset": datasets.Dataset.from_list,
    "shuffled": lambda rows: datasets.Dataset.from_list(rows[::-1]).select(range(len(rows) - 1, -1, -1)),
    "numpy": lambda rows: datasets.Dataset.from_list(rows).with_format("numpy"),
    "tensors": lambda rows: [{name: torch.tensor(row[name]) for name in row} for row in rows],
    "transform": lambda rows: datasets.Dataset.from_list(rows).with_transform(dict),
}


def lists(pack):
    return {name: pack[name].tolist() for name in pack}


@st.composite
def cases(draw):
    lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=30))
    overlong = draw(st.sampled_from(["error", "truncate", "split"]))
    least = max(1, *lengths) if overlong == "error" else 1
    options = {
        "max_length": draw(st.integers(least, least + 12)),
        "strategy": draw(st.sampled_from(["best_fit", "first_fit", "in_order"])),
        "overlong": overlong,
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 3)),
    }
    return lengths, options


@given(cases(), st.integers(0, 3), st.sampled_from(sorted(KINDS)))
def test_each_token_once_and_rows_whole(case, epoch, kind):
    lengths, options = case
    rows, most = rows_of(lengths), options["max_length"]
    given_lengths = lengths if kind == "transform" else None
    packs = quadrat.PackedDataset(KINDS[kind](rows), **options, lengths=given_lengths)
    count = len(packs)
    packs.set_epoch(epoch)
    assert len(packs) == count, "in each epoch"
    contents = [lists(pack) for pack in packs]
    assert [list(pack) for pack in packs] == [["input_ids", "labels", "weights", "seq_lengths"]] * count
    documents = []
    for pack in contents:
        assert len(pack["input_ids"]) == sum(pack["seq_lengths"]) <= most
        bounds = np.cumsum([0, *pack["seq_lengths"]])
        documents += [{name: pack[name][a:b] for name in rows[0]} for a, b in pairwise(bounds)]
    pieces = [
        {name: row[name][start : start + most] for name in row}
        for row, size in zip(rows, lengths, strict=True)
        for start in range(0, max(size, 1) if options["overlong"] == "split" else 1, most)
    ]
    assert sorted(documents, key=repr) == sorted(pieces, key=repr)
    if options["strategy"] == "in_order" and not options["shuffle"]:
        assert documents == pieces
    if not options["shuffle"]:
        numbers = quadrat.batching.plan_packs(lengths, most, options["strategy"], overlong=options["overlong"])
        assert [len(pack["seq_lengths"]) for pack in contents] == numbers.lengths.tolist()
    again = quadrat.PackedDataset(KINDS["list"](rows), **options)
    again.set_epoch(epoch)
    assert [lists(pack) for pack in again] == contents
    total = sum(len(pack["input_ids"]) for pack in contents)
    assert packs.fill == total / (count * most)


def test_epochs_differ_where_rows_may_move():
    for strategy in ("best_fit", "first_fit", "in_order"):
        packs = quadrat.PackedDataset(ROWS, 60, strategy=strategy)
        epochs = []
        for epoch in (0, 1):
            packs.set_epoch(epoch)
            epochs.append([lists(pack) for pack in packs])
        assert epochs[0] != epochs[1]
        same = sorted(epochs[0], key=repr) == sorted(epochs[1], key=repr)
        assert same == (strategy == "in_order"), "only the order of packs"


FLATTENING = quadrat.DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)
LANGUAGE = quadrat.DataCollatorForLanguageModeling(
    make_tokenizer(), mlm=False, padding_free=quadrat.Flattening(return_seq_idx=True, kwargs_for="transformers")
)
TOKENS = quadrat.DataCollatorForTokenClassification(make_tokenizer(), padding_free=True, pad_values={"weights": 0.0})


def packed_forms(packs):
    """Packs in each form that rows have."""
    rows = [dict(pack) for pack in packs]
    plain = [lists(pack) for pack in packs]
    table = pa.table({name: [row[name] for row in plain] for name in plain[0]})
    dataset = datasets.Dataset(table)
    return {
        "packs": packs, "dicts": rows, "lists": plain, "table": table, "columns": dataset[:],
        "arrow": quadrat.ArrowDataset(dataset).__getitems__(range(len(dataset))),
        "batch": [quadrat.ArrowDataset(dataset).__getitems__(range(len(dataset)))],
        "one by one": [pickle.loads(pickle.dumps(pack)) for pack in packs],
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["list", "dataset"])
@pytest.mark.parametrize("name", ["flattening", "language", "tokens"])
def test_collators_that_join_rows_keep_documents_apart(name, kind):
    columns = {"language": ["input_ids"], "flattening": ["input_ids", "labels"], "tokens": None}[name]
    collator = {"flattening": FLATTENING, "language": LANGUAGE, "tokens": TOKENS}[name]
    source = quadrat.PackedDataset(KINDS[kind](ROWS), 60, columns=columns, shuffle=False)
    packs = source.__getitems__([2, 0, 5])
    numbers = quadrat.batching.plan_packs(LENGTHS, 60)
    documents = [ROWS[row] for pack in (2, 0, 5) for row in numbers[pack].tolist()]
    expected = collator([{key: row[key] for key in columns or row} for row in documents if row["input_ids"]])
    for _ in range(2):  # the first time, and when the batch is known
        for form, features in packed_forms(packs).items():
            assert_same_batch(collator(features), expected), form
    assert_same_batch(collator([packs[0], packs[2]]), collator([dict(packs[0]), dict(packs[2])]))


CONSUMERS = [None, "transformers", "megatron", "mask"]
MEGATRON = {"kwargs_for": "megatron", "continue_positions": True, "deferred": False}
DEFERRED = {"kwargs_for": "transformers", "continue_positions": True, "deferred": True}


@given(
    lengths=st.lists(st.lists(st.integers(0, 9) | st.just(40), min_size=1, max_size=4), min_size=1, max_size=4),
    whole=st.booleans(),
    labels=st.booleans(),
    form=st.sampled_from(["arrays", "lists", "tensors"]),
    options=st.fixed_dictionaries(
        {"kwargs_for": st.sampled_from(CONSUMERS), "continue_positions": st.booleans(), "deferred": st.booleans()},
        optional={"align_to": st.sampled_from([1, 4, 16]), "position_ids_start": st.just(2)},
    ),
    size=st.sampled_from([{}, {"pad_to_multiple_of": 16}, {"total_length": 1600}]),
)
@example(lengths=[[8, 3], [5]], whole=True, labels=True, form="arrays", options=MEGATRON, size={})
@example(lengths=[[8, 3], [5]], whole=True, labels=True, form="lists", options=MEGATRON | {"align_to": 4}, size={})
@example(lengths=[[8, 3], [5]], whole=True, labels=False, form="arrays", options=DEFERRED, size={})
def test_packs_are_as_their_documents(*, lengths, whole, labels, form, options, size):
    """In all layouts, whether or not rows without tokens make it impossible to read packs as they are."""
    lengths = [[max(n, int(whole)) for n in pack] for pack in lengths]
    pads, names = {"weights": 0.5}, ["input_ids", *(["labels"] if labels else []), "weights"]
    collator = quadrat.DataCollatorWithFlattening(return_seq_idx=True, pad_values=pads, **options, **size)
    rows = [{name: row[name] for name in names} for row in rows_of([n for pack in lengths for n in pack])]
    constructor = {"arrays": np.array, "lists": list, "tensors": torch.tensor}[form]
    packs, left = [], iter(rows)
    for pack in lengths:
        documents = [next(left) for _ in pack]
        columns = {name: constructor([value for row in documents for value in row[name]]) for name in names}
        packs.append({**columns, "seq_lengths": constructor(pack)})
    documents = [row for row in rows if row["input_ids"]]
    if not documents:
        return
    expected, batches = collator(documents), [collator(packs) for _ in range(2)]
    for batch in batches:
        assert list(batch) == list(expected)
        assert_same_batch(*(output.to("cpu") if options["deferred"] else output for output in (batch, expected)))


def test_rows_without_documents_are_known_apart():
    """A batch whose columns are known but for `seq_lengths`, in turn with one that has them."""
    collator = quadrat.DataCollatorWithFlattening()
    plain, joined = [{"input_ids": [1, 2, 3]}], [{"input_ids": [1, 2, 3], "seq_lengths": [1, 2]}]
    for _ in range(3):
        assert collator(plain)["position_ids"].tolist() == [[0, 1, 2]]
        assert collator(joined)["position_ids"].tolist() == [[0, 0, 1]]
        assert collator(pa.table({"input_ids": [[1, 2, 3]], "seq_lengths": [[1, 2]]}))["position_ids"].tolist() == [
            [0, 0, 1]
        ]


def test_seq_lengths_that_say_something_else():
    collator = quadrat.DataCollatorWithFlattening()
    for other in (3, "3", ["3"], [3.0], None):
        assert collator([{"input_ids": [1, 2, 3], "seq_lengths": other}])["position_ids"].tolist() == [[0, 1, 2]]
    for wrong in ([1, 1], [4], [], [4, -1]):
        rows = [{"input_ids": [7], "seq_lengths": [1]}, {"input_ids": [1, 2, 3], "seq_lengths": wrong}]
        with pytest.raises(ValueError, match=r"row 1: seq_lengths \[.*\] do not sum to its 3 tokens"):
            collator(rows)
    for form in (list, np.array, torch.tensor):
        rows = [
            {"input_ids": form([1]), "labels": form([1]), "seq_lengths": [1]},
            {"input_ids": form([1, 2, 3]), "labels": form([1, 2]), "seq_lengths": [3]},
        ]
        with pytest.raises(ValueError, match=r"row 1 has 3 tokens in 'input_ids' and 2 in 'labels'"):
            collator(rows)


def test_other_columns_of_packed_rows_are_left_out():
    rows = [{"input_ids": [1, 2, 3], "seq_lengths": [1, 2], "text": "a b c", "label": 1}]
    assert list(quadrat.DataCollatorWithFlattening()(rows)) == ["input_ids", "labels", "position_ids"]


@pytest.mark.parametrize("kind", ["list", "dataset"])
def test_collators_that_pad_take_a_pack_for_a_row(kind):
    packs = quadrat.PackedDataset(KINDS[kind](ROWS), 60).__getitems__([0, 3])
    pads = {"seq_lengths": 0, "labels": -100, "weights": 0.0}
    collator = quadrat.DataCollatorWithPadding(make_tokenizer(), pad_values=pads)
    assert_same_batch(collator(packs), collator([lists(pack) for pack in packs]))
    assert_same_batch(collator(packs[1:]), collator([lists(packs[1])]))
    assert collator(packs)["seq_lengths"].shape[1] == max(len(pack["seq_lengths"]) for pack in packs)


def test_edits_are_collated():
    packs = quadrat.PackedDataset(ROWS, 60, columns=["input_ids", "labels"]).__getitems__([0, 1])
    packs[1]["labels"][3] = 55
    place = len(packs[0]["labels"]) + 3
    assert FLATTENING(packs)["labels"][0, place] == 55
    assert FLATTENING([packs[1]])["labels"][0, 3] == 55
    first, second = packs[0]["seq_lengths"][:2].tolist()
    packs[0]["seq_lengths"][:2] = second, first
    assert FLATTENING(packs)["cu_seq_lens_q"][1] == second
    packs[0]["seq_lengths"][0] += 1
    with pytest.raises(ValueError, match=r"row 0: seq_lengths .* do not sum to its"):
        FLATTENING(packs)


def test_columns_that_were_exchanged():
    packs = quadrat.PackedDataset(ROWS, 60, columns=["input_ids", "labels"]).__getitems__([0, 1])
    expected = FLATTENING([lists(pack) for pack in packs])
    packs[0]["labels"] = packs[0]["labels"].tolist()
    assert_same_batch(FLATTENING(packs), expected)
    packs[0]["labels"], packs[1]["labels"] = packs[0]["labels"][1:], np.append(packs[1]["labels"], 5)
    with pytest.raises(ValueError, match=r"row 0 has .* tokens in 'input_ids' and .* in 'labels'"):
        FLATTENING(packs)


def test_packs_travel():
    packs = quadrat.PackedDataset(ROWS, 60).__getitems__([0, 1, 2])
    for travel in (copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))):
        assert lists(travel(packs[1])) == lists(packs[1])
        assert_same_batch(TOKENS(travel(packs)), TOKENS(packs))
    assert len(pickle.dumps(packs[1])) < 60 * 3 * 8 + 1500, "alone"
    assert repr(packs[1]).startswith(f"Pack({len(packs[1]['input_ids'])} tokens, ")
    source = quadrat.PackedDataset(KINDS["dataset"](ROWS), 60, seed=4)
    source.set_epoch(2)
    assert [lists(pack) for pack in pickle.loads(pickle.dumps(source))] == [lists(pack) for pack in source]


def test_packs_of_other_columns():
    dataset, other = (
        quadrat.PackedDataset(ROWS, 60, columns=names) for names in (["input_ids", "labels"], ["input_ids"])
    )
    for packs in ([dataset[0], other[0]], [lists(dataset[0]), lists(other[0])]):
        with pytest.raises(KeyError, match="labels"):
            FLATTENING(packs)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(workers):
    source = quadrat.PackedDataset(KINDS["dataset"](ROWS), 60, columns=["input_ids"])
    loader = DataLoader(
        source, batch_size=2, collate_fn=FLATTENING, num_workers=workers, persistent_workers=workers > 0
    )
    for epoch in (0, 1):
        source.set_epoch(epoch)
        expected = [FLATTENING([source[i] for i in range(first, min(first + 2, len(source)))])
                    for first in range(0, len(source), 2)]  # fmt: skip
        for got, want in zip(loader, expected, strict=True):
            assert_same_batch(got, want)


def test_trainer_keeps_the_documents(tmp_path):
    """Trainer removes columns that the model does not take, `seq_lengths` among them, but from dicts only."""
    rows = [{"input_ids": [3 + i % 300 for i in row["input_ids"]]} for row in ROWS]
    seen = []

    class Seeing(quadrat.DataCollatorWithFlattening):
        def __call__(self, features: Any, *args: Any) -> Any:
            batch = super().__call__(features, *args)
            seen.append(batch["position_ids"].eq(0).sum().item())
            return batch

    given_arguments = arguments(tmp_path, max_steps=3, per_device_train_batch_size=2)
    trained(BertLMHeadModel, quadrat.PackedDataset(rows, 60), given_arguments, data_collator=Seeing())
    assert min(seen) > 2, "more documents than packs"


LABELLED = {"input_ids": [1], "labels": [1]}


def packs_of(rows, max_length=60, **options):
    return lambda: quadrat.PackedDataset(rows, max_length, **options)


def first_of(rows, **options):
    return lambda: quadrat.PackedDataset(rows, 60, **options)[0]


def test_bad_arguments():
    dataset = datasets.Dataset.from_list(ROWS)
    short_row = {"input_ids": [1]}
    for error, message, call in (
        (ValueError, "row 3 has 9 tokens, more than max_length=8", packs_of(rows_of([3, 2, 4, 9]), 8)),
        (ValueError, "must contain 'input_ids', whose lengths are used", packs_of(ROWS, columns=["labels"])),
        (ValueError, "there are 2 lengths for 50 rows: give one for each row", packs_of(ROWS, lengths=[1, 2])),
        (TypeError, "integers", packs_of(ROWS, lengths=[0.5] * 50)),
        (ValueError, "max_length", packs_of(ROWS, 0)),
        (ValueError, "strategy must be one of", packs_of(ROWS, strategy="best")),
        (ValueError, "overlong must be one of", packs_of(ROWS, overlong="cut")),
        (ValueError, "empty", packs_of([])),
        (ValueError, "no column 'tokens'", packs_of(dataset, column="tokens")),
        (ValueError, "with_transform", packs_of(dataset.with_transform(dict))),
        (TypeError, "cannot be indexed by row.*PackedStream", packs_of(dataset.to_iterable_dataset())),
        (TypeError, "seed", packs_of(ROWS, seed=0.5)),
        (TypeError, "column 'text' does not hold rows of numbers", first_of([short_row | {"text": "a"}])),
        (TypeError, "column 'label' does not hold rows of numbers", first_of([short_row | {"label": 1}])),
        (
            ValueError,
            "row 1 has 2 tokens in 'input_ids' and 1 in 'labels'",
            first_of([LABELLED, {"input_ids": [1, 2], "labels": [1]}]),
        ),
        (
            ValueError,
            "row 1 has 3 tokens in 'input_ids', and lengths say 2",
            first_of([short_row, {"input_ids": [1, 2, 3]}], lengths=[1, 2]),
        ),
        (TypeError, "mappings", first_of([short_row, {"labels": [1]}], lengths=[1, 1])),
        (IndexError, "item 99 of", lambda: quadrat.PackedDataset(ROWS, 60)[99]),
    ):
        with pytest.raises(error, match=message):
            call()


def test_kinds_of_numbers():
    rows = [
        {
            "input_ids": np.array([1, 2], np.int32),
            "labels": np.array([True, False]),
            "weights": np.array([0.5, 1], np.float32),
        }
    ]
    pack = quadrat.PackedDataset(rows, 8)[0]
    assert [pack[name].dtype for name in pack] == [np.int32, np.bool_, np.float32, np.int64]
    mixed = quadrat.PackedDataset([{"input_ids": [1]}, {"input_ids": np.array([2], np.int32)}], 8)[0]
    assert mixed["input_ids"].dtype == np.int64
