"""Batch after batch through one collator: options and tokenizers that change, and batches known to fall back."""

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
from support.compare import (
    assert_identical,
    assert_same_batch,
    assert_same_outcome,
    default_dtype,
    outcome,
    seeded,
)
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
@given(
    st.lists(
        st.tuples(features() | features(labels="labels"), st.sampled_from(["nothing"] * 9 + sorted(CHANGES))),
        min_size=2,
        max_size=6,
    ),
    st.booleans(),
)
def test_changes_between_batches(name, steps, anew):
    """Of one collator, or of a new one for each batch, which shares what the others know."""
    reference = getattr(transformers, name)(make_tokenizer())
    collator = getattr(quadrat, name)(make_tokenizer())
    for batch, change in steps:
        collator = copy.copy(collator) if anew else collator
        assert_identical(reference, collator, batch)
        for one in (reference, collator):
            if not (change == "mask dropped in place" and "attention_mask" not in one.tokenizer.model_input_names):
                CHANGES[change](one)
    for batch, _ in steps:
        assert_identical(reference, collator, batch)


# Longer than the draws that show a probability that is rounded in another way.
LONG = [{"input_ids": list(range(7, 7 + n))} for n in (300, 212, 300)]


def bfloat16_is_whole():
    """True if this torch makes all that transformers asks for in bfloat16; otherwise transformers raises."""
    try:
        torch.eye(2, dtype=torch.bfloat16)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("name", samples.TWINS)
def test_other_defaults_of_torch(name):
    """A plan made for one default dtype, or device, is not used for another."""
    reference, collator = samples.pair(name)
    batch = LONG if name.endswith(("LanguageModeling", "WordMask")) else samples.batch(name)
    batch = [{**row, "score": 0.1} for row in batch] if name == "DataCollatorWithPadding" else batch
    dtypes = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float32]
    if not bfloat16_is_whole():
        dtypes.remove(torch.bfloat16)
    for dtype in dtypes:
        with default_dtype(dtype):
            assert_identical(reference, collator, batch)
    with torch.device("meta"):
        expected, got = outcome(reference, copy.deepcopy(batch)), outcome(collator, batch)
        assert_same_outcome(expected, got)
        if got[0] == "returned":
            assert "meta" in {value.device.type for value in got[1].values() if isinstance(value, torch.Tensor)}
    assert_identical(reference, collator, batch, calls=1)


# Options that a copy has as well, beside those of the sample.
OPTIONS = {
    "DataCollatorWithFlattening": {"separator_id": 3, "pad_to_multiple_of": 4, "position_ids_start": 2},
    "DataCollatorForPermutationLanguageModeling": {"max_span_length": 3},
    "DataCollatorForWholeWordMask": {"return_tensors": "np"},
}


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


def rows(**columns: Any) -> list[dict[str, Any]]:
    return [{"input_ids": list(range(5, 5 + n)), **{name: make(n) for name, make in columns.items()}} for n in (4, 2)]


def own() -> Any:
    return make_tokenizer(cls=PadsInItsOwnWay)


# (collator, tokenizer, options, features): each falls back whatever else happens.
KINDS: dict[str, tuple[str, Any, dict[str, Any], Any]] = {
    "a tokenizer of its own": ("DataCollatorWithPadding", own, {}, rows()),
    "no framework": ("DataCollatorWithPadding", make_tokenizer, {"return_tensors": None}, rows()),
    "labels of floats": ("DataCollatorForTokenClassification", make_tokenizer, {}, rows(labels=lambda n: [1.0] * n)),
    "its own, with labels": ("DataCollatorForTokenClassification", own, {}, rows(labels=lambda n: [1] * n)),
    "its own, for NumPy": ("DataCollatorForTokenClassification", own, {"return_tensors": "np"}, rows()),
    "targets of floats": ("DataCollatorForSeq2Seq", make_tokenizer, {}, rows(labels=lambda n: [1.5] * n)),
    "its own, with targets": ("DataCollatorForSeq2Seq", own, {}, rows(labels=lambda n: [1] * n)),
    "its own, causal": ("DataCollatorForLanguageModeling", own, {"mlm": False}, rows()),
    "its own, of choices": ("DataCollatorForMultipleChoice", own, {}, samples.batch("DataCollatorForMultipleChoice")),
}


def pair(name: str, tokenizer: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    made = [getattr(module, name)(tokenizer(), **options) for module in (transformers, quadrat)]
    return made[0], made[1]


def known(collator: Any, features: Any) -> Any:
    """What a collator knows of such batches: (reason, remedy), to fall back."""
    run = vars(collator).get(collator._memory_of(collator.return_tensors))
    return None if run is None else run(collator, features)


def known_to_fall_back(collator: Any, features: Any) -> bool:
    return type(known(collator, features)) is tuple


@pytest.mark.parametrize("kind", KINDS)
def test_is_remembered(kind):
    """Until the tokenizer changes; what comes as columns reaches the reference as rows."""
    name, tokenizer, options, features = KINDS[kind]
    reference, collator = pair(name, tokenizer, options)
    assert_identical(reference, collator, features)
    assert known_to_fall_back(collator, features)
    assert_identical(reference, collator, features)
    assert_identical(reference, collator, tuple(features))
    columns = {column: [feature[column] for feature in features] for column in features[0]}
    assert_identical(reference, collator, features, given=columns)
    for one in (reference, collator):
        one.tokenizer = make_tokenizer(padding_side="left")
    if tokenizer is own:
        assert known(collator, features) is None
    assert_identical(reference, collator, features)


@pytest.mark.parametrize("tokenizer", [own, make_tokenizer], ids=["own", "usual"])
def test_options_of_quadrats_for_batches_that_fall_back(tokenizer):
    """Deferred batches are made of the reference's; columns that it does not pad are not left out."""
    features = rows(labels=lambda n: [1.0] * n, extra=lambda n: [1] * 3)
    collator = quadrat.DataCollatorForTokenClassification(tokenizer())
    plain = collator(features)
    collator.deferred = True
    for _ in range(3):
        batch = collator(features)
        assert isinstance(batch, quadrat.deferred.DeferredBatch)
        assert batch["input_ids"].tolist() == plain["input_ids"].tolist()
    collator.pad_values = {"extra": 0}
    for _ in range(3):
        with pytest.raises(ValueError, match="lacks options"):
            collator(features)


def test_what_failed_by_its_rows_says_nothing_of_others():
    """Rows that hold a float among ints fall back; those of the same kind that do not are made at once."""
    reference, collator = (module.DataCollatorWithPadding(make_tokenizer()) for module in (transformers, quadrat))
    odd, even = rows(score=lambda n: [1, 0.5]), rows(score=lambda n: [1, 2])
    for _ in range(3):
        assert_identical(reference, collator, odd)
        assert known_to_fall_back(collator, odd)
        assert_identical(reference, collator, even)
        assert not known_to_fall_back(collator, even)


def test_known_batches_of_a_stream_are_not_looked_at_again(monkeypatch):
    """As lists are: an item that is a whole batch, alone and as the one item that a DataLoader gives."""
    rows = [{"input_ids": [5] * (1 + n % 7)} for n in range(40)]
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    batches = list(quadrat.BatchedStream(rows, 32))
    expected = [collator(list(batch)) for batch in batches]
    monkeypatch.setattr(quadrat.DataCollatorWithPadding, "_collate_anew", None)
    for items in (batches, [[batch] for batch in batches]):
        for batch, one in zip(items, expected, strict=True):
            assert_same_batch(one, collator(batch))
