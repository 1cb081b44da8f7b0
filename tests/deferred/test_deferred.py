"""deferred=True: the batch that the collator gives without it, wherever and however it becomes one."""

import copy
import io
import pickle
from collections.abc import Callable, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.utils import find_batch_size, send_to_device
from hypothesis import given
from hypothesis import strategies as st
from transformers import BatchEncoding

import quadrat
from quadrat.deferred import layout
from support import samples
from support.columns import FORMS, columns
from support.compare import assert_identical, assert_same_batch, assert_same_outcome, generator_states
from support.masking import make_masking_tokenizer, make_pair, masking_features, masking_tokenizers
from support.on_device import emulated_launches
from support.strategies import PADDING, features, make_tokenizer, row_columns, tokenizers


def pair(cls: Any, *arguments: Any, **options: Any) -> tuple[Any, Any]:
    """A collator, and one that defers."""
    return cls(*arguments, **options), cls(*arguments, deferred=True, **options)


def on_emulated_device(deferred: quadrat.deferred.DeferredBatch) -> Any:
    """The batch as a device makes it: from a copy of the bytes, by the CUDA kernels."""
    with emulated_launches():
        return deferred._wrapped(layout.make(deferred._plan, deferred._buffer.clone()) | deferred._held)


def sent(deferred: quadrat.deferred.DeferredBatch) -> quadrat.deferred.DeferredBatch:
    """As between processes."""
    file = io.BytesIO()
    ForkingPickler(file, pickle.HIGHEST_PROTOCOL).dump(deferred)
    return pickle.loads(file.getvalue())


def assert_becomes(deferred: Any, expected: Mapping[str, Any]) -> None:
    """That a deferred batch becomes `expected`, however it gets there."""
    assert isinstance(deferred, quadrat.deferred.DeferredBatch)
    states = generator_states()
    assert_same_batch(expected, on_emulated_device(deferred))
    assert list(deferred) == list(expected.keys())
    for name, value in reversed(list(expected.items())):
        assert name in deferred
        assert_same_batch(value, deferred[name], name)
        assert deferred[name] is deferred[name]
    for batch in (deferred, pickle.loads(pickle.dumps(deferred)), quadrat.deferred.DeferredBatch(expected)):
        assert len(batch) == len(expected)
        for _ in range(2):
            assert_same_batch(expected, batch.to("cpu"))
    assert generator_states() == states, "masks are drawn when the batch is collated, not when it is made"


def _becomes(expected: tuple[str, Any], got: tuple[str, Any]) -> None:
    if expected[0] == got[0] == "returned":
        assert_becomes(got[1], expected[1])
    else:
        assert_same_outcome(expected, got)
        assert str(got[1]) == str(expected[1])


def assert_deferred(make: Callable[..., Any], features: Any, *, calls: int = 2) -> None:
    """The same batches or errors with and without `deferred`, the same generators, and features left alone."""
    assert_identical(make(), make(deferred=True), features, calls=calls, same=_becomes)


OPTIONS = st.fixed_dictionaries(
    {
        **PADDING,
        "pad_values": st.sampled_from([None] * 3 + [{"extra": -3}, {"extra": 0.5}, {"extra": True}, {"extra": 2**70}]),
    }
)
LABELS = st.sampled_from(["labels", "label"])
PAD_LABEL = st.sampled_from([-100] * 4 + [0, 2**40, 2**63, None])


def maker(cls: Any, *arguments: Any, **options: Any) -> Any:
    return lambda **extras: cls(*arguments, **copy.deepcopy(options), **extras)


@given(tokenizers(), (st.none() | LABELS).flatmap(lambda name: features(labels=name)), OPTIONS, st.none() | PAD_LABEL)
def test_padding(tokenizer, batch, options, pad_label):
    make = maker(quadrat.DataCollatorWithPadding, tokenizer, **options)
    assert_deferred(make, batch)
    make = maker(quadrat.DataCollatorForTokenClassification, tokenizer, label_pad_token_id=pad_label, **options)
    assert_deferred(make, batch)


class Decoder:
    def prepare_decoder_input_ids_from_labels(self, labels: Any) -> Any:
        return torch.cat([labels.new_zeros(len(labels), 1), labels], dim=1)[:, :-1].masked_fill(labels == -100, 0)


@given(st.data(), tokenizers(), OPTIONS, PAD_LABEL, st.sampled_from([None, None, Decoder(), object()]))
def test_seq2seq(data, tokenizer, options, pad_label, model):
    batch = data.draw(features())
    if data.draw(st.integers(0, 4)):
        sizes = data.draw(st.lists(st.integers(0, 9), min_size=len(batch), max_size=len(batch)))
        rows = data.draw(row_columns(sizes, data.draw(st.sampled_from(["list", "list", "array", "tensor"])), "int"))
        batch = [{**feature, "labels": row} for feature, row in zip(batch, rows, strict=True)]
    make = maker(quadrat.DataCollatorForSeq2Seq, tokenizer, model=model, label_pad_token_id=pad_label, **options)
    assert_deferred(make, batch)


MASKING = st.fixed_dictionaries(
    {
        "mlm": st.booleans(),
        "mlm_probability": st.sampled_from([0.15, 0.5, 1]),
        "replacement": st.sampled_from([(0.8, 0.1), (1.0, 0.0), (0.0, 1.0)]),
        "pad_to_multiple_of": st.sampled_from([None, None, 4]),
        "pad_values": st.sampled_from([None, None, {"extra": 1}]),
        "mask_padding": st.sampled_from(["token", "token", "length"]),
        "seed": st.sampled_from([None, 0, 3]),
        "rng": st.sampled_from(["torch", "torch", "philox"]),
    }
)
FLAGS = {
    "return_position_ids": st.booleans(),
    "kwargs_for": st.sampled_from([None, "transformers"]),
    "return_seq_idx": st.booleans(),
}
FREE = st.builds(quadrat.Flattening, **FLAGS, position_ids_start=st.sampled_from([0, 2]))
FREE = st.fixed_dictionaries({}, optional={"padding_free": st.just(True) | FREE})


@given(masking_tokenizers(), masking_features(), MASKING, FREE)
def test_language_modeling(tokenizer, batch, options, free):
    assert_deferred(lambda **extras: make_pair(tokenizer, {**options, **free, **extras}, both=False), batch)


@pytest.mark.parametrize("padding_side", ["right", "left"])
@given(st.lists(st.integers(0, 30), min_size=1, max_size=5), MASKING, FREE)
def test_language_modeling_of_what_it_knows(padding_side, lengths, options, free):
    """Nothing falls back, not even whole words."""
    tokenizer = make_masking_tokenizer(padding_side=padding_side)
    whole = options["mlm"] and len(lengths) % 2 == 0
    rows = [{"input_ids": list(range(7, 7 + n)), "word_ids": [i // 2 for i in range(n)]} for n in lengths]
    rows = rows if whole else [{"input_ids": row["input_ids"]} for row in rows]
    options = {**options, **free, "whole_word_mask": whole}
    options["replacement"] = (1.0, 0.0) if whole else options["replacement"]  # 4.57 has no other for whole words
    assert_deferred(lambda **extras: make_pair(tokenizer, {**options, **extras}, both=False), rows, calls=3)


FLATTENING = st.fixed_dictionaries(
    {},
    optional={
        **FLAGS,
        "return_flash_attn_kwargs": st.booleans(),
        "separator_id": st.sampled_from([-100, 7, 2**40, 2**63, None]),
        "position_ids_start": st.sampled_from([0, 2, -3]),
        "pad_to_multiple_of": st.sampled_from([1, 4, 64]),
        "pad_values": st.sampled_from([{"token_type_ids": 3}, {"input_ids": 9, "token_type_ids": 0.5}]),
        "scalar_labels": st.booleans(),
    },
)


@given(features() | features(labels="labels"), FLATTENING)
def test_flattening(batch, options):
    assert_deferred(maker(quadrat.DataCollatorWithFlattening, **options), batch)


@given(features(equal=True))
def test_default(batch):
    assert_deferred(quadrat.DefaultDataCollator, batch)


@pytest.mark.parametrize("form", [None, "dict", "tuples", "BatchEncoding"])
@pytest.mark.parametrize("name", samples.CLASSES)
def test_every_collator(name, form):
    batch: Any = samples.batch(name)
    if form is not None:
        batch = FORMS[form](None, {key: [feature[key] for feature in batch] for key in batch[0]})
    assert_deferred(lambda **extras: samples.make(quadrat, name, **extras), batch, calls=3)


@pytest.mark.parametrize("form", ["sliced", "polars", "nested"])
@given(st.data(), columns(odd=False))
def test_columns(form, data, lists):
    batch = FORMS[form](data.draw, lists)
    collator, deferring = pair(quadrat.DataCollatorWithPadding, make_tokenizer())
    try:
        expected = collator(batch)
    except ValueError:
        return
    assert_becomes(deferring(batch), expected)


@st.composite
def rows_to_mask(draw, keyed):
    """Rows of ids, special ones among them, with the columns that masking looks at, or is to leave alone."""
    names = draw(st.sets(st.sampled_from(["special_tokens_mask", "token_type_ids", "attention_mask", "extra"])))
    rows = []
    for n in draw(st.lists(st.integers(0, 40), min_size=1, max_size=5)):
        ids = draw(st.lists(st.integers(0, 20) | st.sampled_from([-1, 398, 399, 2**40]), min_size=n, max_size=n))
        flags = {name: [(i + n) % (2 + len(name) % 3) for i in range(n)] for name in sorted(names)}
        rows.append({"input_ids": ids, **flags, **({"idx": draw(st.integers(-(2**63), 2**63 - 1))} if keyed else {})})
    make = draw(st.sampled_from([list, np.array, torch.tensor]))
    return [{name: make(v) if name != "idx" and len(v) else v for name, v in row.items()} for row in rows]


BY_COUNTER = st.fixed_dictionaries(
    {
        "row_key": st.sampled_from([None, "idx"]),
        "padding_free": st.sampled_from([False, False, True]),
        "mlm_probability": st.sampled_from([0, 0.15, 0.5, 1]),
        "mask_replace_prob": st.sampled_from([0.8, 0.25]),
        "random_replace_prob": st.sampled_from([0.1, 0.2]),
        "pad_to_multiple_of": st.sampled_from([None, 8]),
        "seed": st.sampled_from([None, 3, 2**64 - 1]),
    }
)


@given(st.data(), BY_COUNTER, st.sampled_from(["right", "left"]), st.sampled_from([(), ("w398", "w399")]))
def test_masks_by_counter(data, options, side, extra):
    rows = data.draw(rows_to_mask(options["row_key"]))
    pad_token = data.draw(st.sampled_from(["[PAD]", "[EOS]"]))
    tokenizer = make_masking_tokenizer(padding_side=side, extra=extra, pad_token=pad_token)
    epoch = data.draw(st.sampled_from([0, 1, 2**32 - 1]))

    def make(**extras):
        collator = quadrat.DataCollatorForLanguageModeling(
            tokenizer, rng="philox", pad_values={"extra": 7}, **options, **extras
        )
        collator.set_epoch(epoch)
        return collator

    assert_deferred(make, rows, calls=3)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    ("options", "flagged", "extra_bytes"),
    [
        ({"mlm": False}, False, 0),
        ({"rng": "philox", "seed": 1, "mlm_probability": 0.5}, False, 8 * 32 + 2 * 64),
        ({"rng": "philox", "seed": 1, "mlm_probability": 0.5}, True, 8 * 32 + 2 * 64),
    ],
    ids=["causal", "masked", "flagged"],
)
def test_what_travels(side, options, flagged, extra_bytes):
    """Tokens and lengths, no padding, and no labels: a few bytes a row to mask by, and one a token if flagged."""
    lengths = [512, *[8] * 31]
    rows = [{"input_ids": [7] * n, **({"special_tokens_mask": [0] * n} if flagged else {})} for n in lengths]
    tokenizer = make_masking_tokenizer(padding_side=side)
    collator, batch_of = pair(quadrat.DataCollatorForLanguageModeling, tokenizer, **options)
    batch, tokens = batch_of(rows), sum(lengths)
    assert (8 + flagged) * tokens < batch.nbytes <= (8 + flagged) * tokens + 8 * 33 + 2 * 64 + extra_bytes
    expected = collator(rows)
    assert sum(value.nbytes for value in expected.values()) == 3 * 8 * 32 * 512
    assert (expected["labels"] == 7).sum() > tokens // 3
    assert_becomes(batch, expected)
    assert_same_batch(expected, sent(batch).to("cpu"))


@pytest.mark.parametrize(
    ("columns", "launches"),
    [
        ((), ["philox_mask"]),
        (("token_type_ids",), ["pad_columns", "philox_mask"]),
        (("special_tokens_mask",), ["pad_columns", "philox_mask"]),
    ],
)
def test_launches_that_mask(columns, launches):
    rows = [{"input_ids": [7] * n, **{name: [0] * n for name in columns}} for n in (9, 3)]
    collator = quadrat.DataCollatorForLanguageModeling(make_masking_tokenizer(), rng="philox", deferred=True)
    batch = collator(rows)
    with emulated_launches() as launched:
        layout.make(batch._plan, batch._buffer)
    assert launched == launches


def test_an_epoch_ends_after_its_batches():
    """A batch is masked as of the epoch it was collated in, wherever it is when the next begins."""
    rows = [{"input_ids": list(range(7, 60))}] * 2
    collator, deferring = pair(quadrat.DataCollatorForLanguageModeling, make_masking_tokenizer(), rng="philox")
    expected, batch = collator(rows), deferring(rows)
    for instance in (collator, deferring):
        instance.set_epoch(1)
    assert not torch.equal(collator(rows)["labels"], expected["labels"])
    assert_becomes(batch, expected)
    assert_becomes(deferring(rows), collator(rows))


ROWS = [{"input_ids": [7, 8, 9], "label": 1}, {"input_ids": [7], "label": 0}]


def deferred(**options: Any) -> quadrat.deferred.DeferredBatch:
    return quadrat.DataCollatorWithPadding(make_tokenizer(), deferred=True, **options)(copy.deepcopy(ROWS))


def test_is_a_mapping():
    batch = deferred()
    assert list(batch) == list(batch.keys()) == ["input_ids", "attention_mask", "labels"]
    assert "labels" in batch
    assert "label" not in batch
    assert batch["labels"].tolist() == [1, 0]
    assert batch.get("token_type_ids") is None
    assert [name for name, _ in batch.items()] == list(batch)
    with pytest.raises(KeyError, match="label"):
        batch["label"]
    assert find_batch_size(batch) == 2
    assert (batch.device.type, batch.nbytes, batch.is_pinned()) == ("cpu", batch._buffer.nbytes, False)
    assert repr(batch) == (
        "DeferredBatch(input_ids [2, 3] int64, attention_mask [2, 3] int64, labels [2] int64; 192 bytes)"
    )


def test_each_batch_is_made_anew():
    batch = deferred()
    first = batch.to("cpu")
    first["input_ids"].zero_()
    first["labels"].zero_()
    assert_same_batch(quadrat.DataCollatorWithPadding(make_tokenizer())(ROWS), batch.to("cpu"))


@pytest.mark.parametrize("name", samples.CLASSES)
@pytest.mark.parametrize("known", [False, True])
def test_torch_tensors_only(name, known):
    """Also where the option is set after batches of arrays have become known."""
    collator = samples.make(quadrat, name, deferred=not known, return_tensors="np")
    for _ in range(2 * known * ((name, "np") in samples.BATCHES)):
        collator(samples.batch(name))
    collator.deferred = True
    with pytest.raises(ValueError, match="deferred=True makes torch tensors: return_tensors must be 'pt', not 'np'"):
        collator(samples.batch(name))


def test_switched_on_and_off():
    """A recipe is for what was asked when it was made."""
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    for setting in (False, True, True, False, True):
        collator.deferred = setting
        assert isinstance(collator(ROWS), quadrat.deferred.DeferredBatch if setting else BatchEncoding)


def test_of_tensors():
    tensors = {
        "ids": torch.arange(6).view(2, 3),
        "half": torch.ones(2, 3, dtype=torch.float16),
        "turned": torch.arange(6).view(3, 2).T,
        "flag": torch.tensor([True, False]),
        "none": None,
        "number": torch.tensor(2.5),
        "empty": torch.empty(2, 0),
        "length": 3,
    }
    for first, value in tensors.items():
        ordered = {first: value, **tensors}
        batch = quadrat.deferred.DeferredBatch(ordered)
        assert_becomes(batch, ordered)
        assert_same_batch(ordered, sent(batch).to("cpu"))
        assert type(send_to_device(batch, "cpu")) is dict


def test_other_devices_get_the_tensors():
    batch = deferred()
    moved = batch.to("meta")
    assert type(moved) is BatchEncoding
    assert {name: (value.shape, value.dtype) for name, value in moved.items()} == {
        name: (value.shape, value.dtype) for name, value in batch.to("cpu").items()
    }


def test_many_columns():
    """More than go into one launch."""
    names = [f"extra{i}" for i in range(40)]
    rows = [{"input_ids": [7] * n, **{name: [i] * n for i, name in enumerate(names)}} for n in (3, 1)]
    pad_values = dict.fromkeys(names, -1)
    batch = quadrat.DataCollatorWithPadding(make_tokenizer(), pad_values=pad_values, deferred=True)(rows)
    assert_same_batch(batch.to("cpu"), on_emulated_device(batch))
    flat = quadrat.DataCollatorWithFlattening(pad_values=pad_values, pad_to_multiple_of=8, deferred=True)(rows)
    assert_same_batch(flat.to("cpu"), on_emulated_device(flat))
