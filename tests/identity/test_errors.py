"""Bad input: the reference's exception type, and a message that names column, row, lengths and what to do."""

import copy
import gc
import sys
from typing import Any, TypeAlias

import pytest
import transformers

import quadrat
from quadrat.planning.diagnosis import diagnose
from support import samples
from support.compare import outcome
from support.errors import check
from support.isolated import python
from support.strategies import make_tokenizer

GOOD = {"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1], "labels": [1, 2, 3]}
SHORT = {"input_ids": [5, 6], "attention_mask": [1, 1], "labels": [1, 2]}


def changed(**columns: Any) -> list[dict[str, Any]]:
    return [GOOD, {**SHORT, **columns}]


# name -> (features, options, what the message must say); the options `tokenizer` are those of the tokenizer
Cases: TypeAlias = dict[str, tuple[Any, dict[str, Any], list[str]]]
PADDING_CASES: Cases = {
    "None in a row": (changed(input_ids=[5, None]), {}, ["input_ids", "row 1", "position 1", "None"]),
    "str in a row": (changed(input_ids=[5, "x"]), {}, ["input_ids", "row 1", "position 1", "'x'"]),
    "int beyond int64": (changed(input_ids=[5, 2**63]), {}, ["input_ids", "row 1", "position 1", "int64"]),
    "missing column": ([GOOD, {"input_ids": [5]}], {}, ["attention_mask", "missing", "row 1"]),
    "lengths differ": (changed(attention_mask=[1]), {}, ["attention_mask", "row 1", "length 1", "has 2"]),
    "nested": (changed(input_ids=[5, [6]]), {}, ["input_ids", "row 1", "position 1", "a list", "one flat row"]),
    "empty batch": ([], {}, ["empty", "no rows"]),
    "no pad token": ([GOOD, SHORT], {"tokenizer": {"pad_token": None}}, ["pad token", "eos_token"]),
    "unknown side": ([GOOD, SHORT], {"tokenizer": {"padding_side": "middle"}}, ["padding_side", "'middle'", "'left'"]),
    "max_length": (
        [GOOD, SHORT],
        {"padding": "max_length", "max_length": 2},
        ["input_ids", "row 0", "3 tokens", "max_length=2", "truncation"],
    ),
    "no padding": ([GOOD, SHORT], {"padding": False}, ["length 3", "length 2", "padding=True"]),
    "main column": ([{"ids": [1]}], {}, ["input_ids", "['ids']"]),
    "too many labels": ([GOOD, {**SHORT, "labels": [1] * 9}], {}, ["labels", "row 1", "9 labels", "2 tokens"]),
    "column is None": (changed(labels=None), {}, ["labels", "row 1", "None"]),
    "column is a str": ([{**GOOD, "labels": "a"}, {**SHORT, "labels": "b"}], {}, ["labels", "row 0", "str"]),
}


@pytest.mark.parametrize("multiple", [2**48 + 1, 2**62, 2**63 - 1, 2**63, 2**64])
@pytest.mark.parametrize("name", [name for name in samples.TWINS if hasattr(samples.make(quadrat, name), "tokenizer")])
def test_widths_beyond_any_memory(name, multiple):
    collators = [samples.make(library, name) for library in (transformers, quadrat)]
    for collator in collators:
        collator.pad_to_multiple_of = multiple  # permutation language modelling pays no attention to it
    expected, got = (outcome(collator, samples.batch(name)) for collator in collators)
    assert (got[0], type(got[1])) == (expected[0], type(expected[1]))


TARGETS = {**GOOD, "labels": [1, 2]}
FEW = {"input_ids": [[5], [6, 7]], "attention_mask": [[1], [1, 1]], "label": 1}


def target(**columns: Any) -> list[dict[str, Any]]:
    return [TARGETS, {**SHORT, "labels": [1, 2, 3, 4], **columns}]


SEQ2SEQ_CASES: Cases = {
    "some labels None": (target(labels=None), {}, ["labels", "row 1", "None"]),
    "labels missing": ([TARGETS, SHORT | {"other": 1}], {}, ["labels", "missing", "row 1"]),
    "beyond int64": (target(labels=[2**63]), {}, ["labels", "row 1", "position 0", "int64"]),
}  # fmt: skip

CHOICE_CASES: Cases = {
    "fewer choices": (
        [FEW, {**FEW, "attention_mask": [[1]]}], {}, ["attention_mask", "row 1", "1 choices", "input_ids", "2"]
    ),
    "None in a row": (
        [FEW, {**FEW, "input_ids": [[5], [6, None]]}], {}, ["input_ids", "row 3", "position 1", "None", "2 each"]
    ),
    "lengths differ": (
        [FEW, {**FEW, "attention_mask": [[1], [1]]}], {}, ["attention_mask", "row 3", "length 1", "has 2"]
    ),
    "no choices": ([{"input_ids": [], "label": 0}], {}, ["input_ids", "row 0", "0 choices"]),
    "no input_ids": ([{"ids": [[5]], "label": 0}], {}, ["input_ids", "['ids', 'label']"]),
    "max_length": ([FEW], {"padding": "max_length", "max_length": 1}, ["row 1", "2 tokens", "max_length=1"]),
    "no padding": ([FEW], {"padding": False}, ["input_ids", "length 1", "length 2", "padding=True"]),
    "empty batch": ([], {}, ["empty"]),
}  # fmt: skip


DEFAULT_CASES: Cases = {
    "None in a row": ([{"a": [1, 2]}, {"a": [1, None]}], {}, ["'a'", "row 1", "position 1", "None"]),
    "str in a row": ([{"a": [1, 2]}, {"a": [1, "x"]}], {}, ["'a'", "row 1", "position 1"]),
    "int beyond int64": ([{"a": [1, 2]}, {"a": [1, 2**64]}], {}, ["'a'", "row 1", "position 1", "int64"]),
    "missing column": ([{"a": [1, 2]}, {"b": [1]}], {}, ["'a'", "missing", "row 1"]),
    "empty batch": ([], {}, ["empty"]),
    "None later": ([{"a": 1}, {"a": None}], {}, ["'a'", "row 1", "None"]),
}
CASES: dict[str, Cases] = {
    "DataCollatorForTokenClassification": PADDING_CASES,
    "DataCollatorForSeq2Seq": SEQ2SEQ_CASES,
    "DataCollatorForMultipleChoice": CHOICE_CASES,
    "DefaultDataCollator": DEFAULT_CASES,
}


def made(name: str, options: dict[str, Any]) -> list[Any]:
    """(the reference's collator, quadrat's)."""
    options = dict(options)
    arguments = [make_tokenizer(**options.pop("tokenizer", {}))] if name != "DefaultDataCollator" else []
    return [getattr(module, name)(*arguments, **options) for module in (transformers, quadrat)]


@pytest.mark.parametrize(
    ("name", "framework", "case"), [(*batch, case) for batch in samples.BATCHES for case in CASES.get(batch[0], ())]
)
def test_errors_say_more(name, framework, case):
    features, options, said = CASES[name][case]
    reference, collator = made(name, {"return_tensors": framework, **options})
    check(lambda rows: reference(copy.deepcopy(rows)), collator, features, said)


def growth(collator: Any, features: Any, calls: int) -> int:
    """Blocks that Python's allocator holds more after so many calls."""
    gc.collect()
    base = sys.getallocatedblocks()
    for _ in range(calls):
        outcome(collator, features)
    gc.collect()
    return sys.getallocatedblocks() - base


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(PADDING_CASES))
def test_no_leak(case):
    features, options, _ = PADDING_CASES[case]
    collator = made("DataCollatorForTokenClassification", options)[1]
    objects = [value for feature in features for value in feature.values() if isinstance(value, list)]
    for _ in range(3):
        outcome(collator, features)
    gc.collect()
    before = [sys.getrefcount(value) for value in objects]
    # The reference itself leaves some blocks behind now and then; an object kept by each call shows in every window.
    calls = 50
    assert min(growth(collator, features, calls) for _ in range(3)) < calls
    assert [sys.getrefcount(value) for value in objects] == before


IN_NO_TIME = """
import enum, sys
import quadrat
from support import samples
Label = enum.IntEnum("Label", "FIRST SECOND")
tokenizer = samples.tokenizer()
rows = [{"input_ids": [5, 6], "extra": [1, 2]}, {"input_ids": [5], "extra": [1]}]
places = {
    "a value": [{**row, "label": Label.FIRST} for row in rows],
    "in a row": [{**row, "input_ids": [Label.FIRST] * len(row["input_ids"])} for row in rows],
    "bare": [[Label.FIRST, None], [Label.SECOND]],
}
for features in places.values():
    for name in ("DataCollatorWithPadding", "DataCollatorForTokenClassification", "DataCollatorForLanguageModeling",
                 "DataCollatorForPermutationLanguageModeling"):
        try:
            getattr(quadrat, name)(tokenizer)(features)
        except Exception as error:
            assert "quadrat: " in str(error), error
"""


@pytest.mark.slow
def test_int_subclasses_are_diagnosed_at_once():
    """`value in range(...)` compares one by one with every number of the range where `value` is not exactly an int."""
    python("-c", IN_NO_TIME, seconds=120)


def calls_of(work: Any) -> int:
    """How many functions are called, Python's and C's."""
    count = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", ["DataCollatorWithPadding", "DataCollatorForLanguageModeling", "DefaultDataCollator"])
def test_long_rows_are_not_looked_at_token_by_token(name):
    collator = samples.make(quadrat, name)

    def calls(length: int) -> int:
        row = {"input_ids": list(range(300, 300 + length)), "bools": [True] * length, "floats": [0.5] * length}
        features = [{**row, "extra": [1] * n} for n in (2, 3)]
        said: list[Any] = []
        count = calls_of(lambda: said.append(diagnose(features, collator)))
        assert "'extra' is ragged" in said[0]
        return count

    calls(1)  # the first does what later ones need not do again
    assert calls(10_000) == calls(10)


def test_long_values_are_cut_short():
    tokenizer = make_tokenizer()
    collator = quadrat.DataCollatorWithPadding(tokenizer)
    good = {"input_ids": [5, 6]}
    huge = "long " * 100_000
    columns = {f"column {i}": [1, 2] for i in range(1000)}
    for features in (
        [huge],
        [{"input_ids": [huge]}],
        [{**good, "label": huge}],
        [columns],
        [{**good, **columns}, columns],
    ):
        kind, error = outcome(collator, features)
        assert kind == "raised"
        assert len(str(error).partition("quadrat: ")[2]) in range(20, 600)


def test_reasons_are_logged_by_kind(caplog):
    """Not by their words, which name rows and positions: a collator would keep and say another for every batch."""
    collator = samples.make(quadrat, "DataCollatorForWholeWordMask")
    with caplog.at_level("DEBUG", logger="quadrat"):
        for place in range(50):
            features = [{"input_ids": [5] * 60} for _ in range(60)]
            features[place] = {"input_ids": [5] * place + [2**40] + [5]}
            outcome(collator, features)
    assert len(collator._quadrat_fell_back) == len(caplog.records) == 1
    assert "row 0, position 0" in caplog.messages[0]


def test_kinds_of_reasons_are_bounded(caplog):
    """However odd what they name is."""
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    with caplog.at_level("DEBUG", logger="quadrat"):
        for i in range(200):
            collator.return_tensors = type(f"Framework{'x' * i}", (), {})()
            outcome(collator, [GOOD])
    assert len(collator._quadrat_fell_back) == len(caplog.records) <= 64
