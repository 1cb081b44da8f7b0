"""Batch after batch through one collator, with its options and its tokenizer changing in between."""

import copy
import pickle
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support import samples
from support.compare import assert_identical, assert_same_outcome, both, default_dtype, seeded
from support.strategies import PadsInItsOwnWay, features, make_tokenizer

CHANGES: dict[str, Any] = {
    "nothing": lambda collator: None,
    "side": lambda collator: setattr(collator.tokenizer, "padding_side", "left"),
    "wrong side": lambda collator: setattr(collator.tokenizer, "padding_side", "middle"),
    "pad token": lambda collator: setattr(collator.tokenizer, "pad_token", "[EOS]"),
    "no pad token": lambda collator: setattr(collator.tokenizer, "pad_token", None),
    "token type": lambda collator: setattr(collator.tokenizer, "_pad_token_type_id", 3),
    "new pad token": lambda collator: collator.tokenizer.add_special_tokens({"pad_token": "[NEW]"}),
    "main input": lambda collator: collator.tokenizer.model_input_names.insert(0, "token_type_ids"),
    "no mask": lambda collator: setattr(collator.tokenizer, "model_input_names", ["input_ids"]),
    "mask dropped in place": lambda collator: collator.tokenizer.model_input_names.remove("attention_mask"),
    "own _pad": lambda collator: setattr(collator.tokenizer, "__class__", PadsInItsOwnWay),
    "pad of the instance": lambda collator: setattr(collator.tokenizer, "pad", lambda *a, **k: {"input_ids": 1}),
    "strategies of the instance": lambda collator: setattr(
        collator.tokenizer, "_get_padding_truncation_strategies", lambda **k: ("longest", None, None, {})
    ),
    "multiple": lambda collator: setattr(collator, "pad_to_multiple_of", 8),
    "bool for int": lambda collator: setattr(collator, "pad_to_multiple_of", True),
    "max_length": lambda collator: (setattr(collator, "padding", "max_length"), setattr(collator, "max_length", 9)),
    "no padding": lambda collator: setattr(collator, "padding", False),
    "one for True": lambda collator: setattr(collator, "padding", 1),
    "numpy": lambda collator: setattr(collator, "return_tensors", "np"),
    "label": lambda collator: setattr(collator, "label_pad_token_id", -1),
    "float label": lambda collator: setattr(collator, "label_pad_token_id", -1.0),
    "tokenizer": lambda collator: setattr(collator, "tokenizer", make_tokenizer(padding_side="left")),
}


PADDING_COLLATORS = ["DataCollatorWithPadding", "DataCollatorForTokenClassification", "DataCollatorForSeq2Seq"]


@pytest.mark.parametrize("name", PADDING_COLLATORS)
@given(st.lists(st.tuples(features(labels="labels"), st.sampled_from(sorted(CHANGES))), min_size=2, max_size=5))
def test_changes_between_batches(name, steps):
    reference = getattr(transformers, name)(make_tokenizer())
    collator = getattr(quadrat, name)(make_tokenizer())
    for batch, change in steps:
        assert_identical(reference, collator, batch)
        for one in (reference, collator):
            if not (change == "mask dropped in place" and "attention_mask" not in one.tokenizer.model_input_names):
                CHANGES[change](one)
    assert_identical(reference, collator, steps[0][0])


@given(st.lists(features(), min_size=2, max_size=8))
def test_many_kinds_of_batch(batches):
    reference, collator = both("DataCollatorWithPadding", make_tokenizer())
    for batch in [*batches, *batches]:
        assert_identical(reference, collator, batch)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_default_dtype(dtype):
    batch = [{"input_ids": [5, 6], "score": 0.1}, {"input_ids": [5], "score": 0.2}]
    reference, collator = both("DataCollatorWithPadding", make_tokenizer())
    assert_identical(reference, collator, batch)
    with default_dtype(dtype):
        assert_identical(reference, collator, batch)
        assert_identical(transformers.default_data_collator, quadrat.default_data_collator, [{"score": 0.1}])
    assert_identical(reference, collator, batch)


def test_default_device():
    tokenizer = make_tokenizer()
    batch = [{"input_ids": [5, 6]}, {"input_ids": [5]}]
    collator = quadrat.DataCollatorWithPadding(tokenizer)
    for _ in range(2):
        assert collator(batch)["input_ids"].device.type == "cpu"
    with torch.device("meta"):
        assert collator(batch)["input_ids"].device.type == "meta"
        assert quadrat.default_data_collator([{"input_ids": [1]}])["input_ids"].device.type == "meta"
    assert collator(batch)["input_ids"].device.type == "cpu"


# Options that a copy has as well, beside those of the sample.
OPTIONS = {
    "DataCollatorWithFlattening": {"separator_id": 3, "pad_to_multiple_of": 4, "position_ids_start": 2},
    "DataCollatorForPermutationLanguageModeling": {"max_span_length": 3},
    "DataCollatorForWholeWordMask": {"return_tensors": "np"},
}


@pytest.mark.filterwarnings("ignore:DataCollatorForWholeWordMask is only suitable")
@pytest.mark.parametrize("copied", [lambda one: pickle.loads(pickle.dumps(one)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("name", samples.CLASSES)
def test_copies_start_afresh_from_the_same_state(name, copied):
    collator, fresh = (samples.make(quadrat, name, **OPTIONS.get(name, {})) for _ in range(2))
    collator(samples.batch(name))
    if copied is not copy.copy and any(isinstance(one, torch.Generator) for one in vars(collator).values()):
        try:
            copied(torch.Generator())
        except TypeError:
            pytest.skip("this torch cannot copy generators")
    twin = copied(collator)
    assert set(vars(twin)) == set(vars(fresh))
    expected, states = seeded(collator, samples.batch(name))
    if copied is not copy.copy or vars(fresh).get("seed") is None:  # it shares the generator
        got, other_states = seeded(twin, samples.batch(name))
        assert_same_outcome(expected, got)
        assert states == other_states
