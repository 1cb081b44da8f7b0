"""Bad input: the reference's exception type, and a message that names column, row, lengths and what to do."""

import copy
import enum
import sys
from typing import Any

import pytest
import transformers

import quadrat
from quadrat.planning.diagnosis import diagnose
from support import samples
from support.compare import both, check_error, outcome
from support.strategies import make_tokenizer

LANGUAGE = ("ForLanguageModeling", "ForPermutationLanguageModeling")
GOOD = {"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1], "labels": [1, 2, 3]}
SHORT = {"input_ids": [5, 6], "attention_mask": [1, 1], "labels": [1, 2]}


def changed(**columns: Any) -> list[dict[str, Any]]:
    return [GOOD, {**SHORT, **columns}]


@pytest.mark.parametrize("multiple", [2**48 + 1, 2**62, 2**63 - 1, 2**63, 2**64])
@pytest.mark.parametrize("name", [name for name in samples.TWINS if hasattr(samples.make(quadrat, name), "tokenizer")])
def test_widths_beyond_any_memory(name, multiple):
    collators = [samples.make(library, name) for library in (transformers, quadrat)]
    for collator in collators:
        collator.pad_to_multiple_of = multiple  # permutation language modelling pays no attention to it
    expected, got = (outcome(collator, samples.batch(name)) for collator in collators)
    assert (got[0], type(got[1])) == (expected[0], type(expected[1]))


FEW = {"input_ids": [[5], [6, 7]], "attention_mask": [[1], [1, 1]], "label": 1}
TARGETS = {**GOOD, "labels": [1, 2]}
TAGS, SEQ2SEQ = "DataCollatorForTokenClassification", "DataCollatorForSeq2Seq"
CHOICE, STACKED = "DataCollatorForMultipleChoice", "DefaultDataCollator"

# (collator, features, options, what the message must say), of mistakes that test_error_hints_*.py does not have
CASES: list[tuple[str, Any, dict[str, Any], list[str]]] = [
    (TAGS, changed(input_ids=[5, [6]]), {}, ["input_ids", "row 1", "position 1", "a list", "one flat row"]),
    (TAGS, changed(labels=None), {}, ["labels", "row 1", "None"]),
    (TAGS, [{**GOOD, "labels": "a"}, {**SHORT, "labels": "b"}], {}, ["labels", "row 0", "str"]),
    (SEQ2SEQ, [TARGETS, {**SHORT, "labels": None}], {}, ["labels", "row 1", "None"]),
    (SEQ2SEQ, [TARGETS, {**SHORT, "labels": [2**63]}], {}, ["labels", "row 1", "position 0", "int64"]),
    (SEQ2SEQ, [TARGETS, {"input_ids": [5, 6], "attention_mask": [1, 1], "other": 1}], {}, ["labels", "missing"]),
    (CHOICE, [FEW, {**FEW, "attention_mask": [[1]]}], {}, ["attention_mask", "row 1", "1 choices", "input_ids", "2"]),
    (CHOICE, [FEW, {**FEW, "input_ids": [[5], [6, None]]}], {}, ["row 3", "position 1", "None", "2 each"]),
    (CHOICE, [FEW, {**FEW, "attention_mask": [[1], [1]]}], {}, ["attention_mask", "row 3", "length 1", "has 2"]),
    (CHOICE, [{"input_ids": [], "label": 0}], {}, ["input_ids", "row 0", "0 choices"]),
    (CHOICE, [{"ids": [[5]], "label": 0}], {}, ["input_ids", "['ids', 'label']"]),
    (CHOICE, [FEW], {"padding": "max_length", "max_length": 1}, ["row 1", "2 tokens", "max_length=1"]),
    (CHOICE, [FEW], {"padding": False}, ["input_ids", "length 1", "length 2", "padding=True"]),
    (CHOICE, [], {}, ["empty"]),
    (STACKED, [], {}, ["empty"]),
    (STACKED, [{"a": [1, 2]}, {"a": [1, None]}], {}, ["'a'", "row 1", "position 1", "None"]),
    (STACKED, [{"a": [1, 2]}, {"a": [1, 2**64]}], {}, ["'a'", "row 1", "position 1", "int64"]),
    (STACKED, [{"a": [1, 2]}, {"b": [1]}], {}, ["'a'", "missing", "row 1"]),
]


@pytest.mark.parametrize(
    ("framework", "name", "features", "options", "said"),
    [(framework, *case) for framework in ("pt", "np") for case in CASES if (case[0], framework) in samples.BATCHES],
)
def test_errors_say_more(framework, name, features, options, said):
    arguments = [make_tokenizer()] if name != STACKED else []
    reference, collator = both(name, *arguments, **{"return_tensors": framework, **options})
    (kind, expected), got = outcome(reference, copy.deepcopy(features)), outcome(collator, features)
    if kind == "returned":
        assert got[0] == "returned"
    else:
        check_error(expected, got, said)


@pytest.mark.parametrize("name", [TAGS, *(f"DataCollator{one}" for one in ("WithPadding", *LANGUAGE))])
def test_int_subclasses_are_diagnosed_at_once(name):
    """`value in range(...)` compares one by one with every number of the range where `value` is not exactly an int."""
    label = enum.IntEnum("label", "FIRST SECOND")
    rows = [{"input_ids": [5, 6], "extra": [1, 2]}, {"input_ids": [5], "extra": [1]}]
    for features in (
        [{**row, "label": label.FIRST} for row in rows],
        [{**row, "input_ids": [label.FIRST] * len(row["input_ids"])} for row in rows],
        [[label.FIRST, None], [label.SECOND]],
    ):
        kind, error = outcome(getattr(quadrat, name)(samples.tokenizer()), features)
        assert kind == "returned" or "quadrat: " in str(error)


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
    assert calls(10_000) < calls(10) + 100  # some calls are of garbage that is collected meanwhile


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
    assert caplog.messages[0].startswith("DataCollatorForWholeWordMask: fell back to transformers: ")
    assert "row 0, position 0" in caplog.messages[0]


def test_kinds_of_reasons_are_bounded(caplog):
    """However odd what they name is."""
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    with caplog.at_level("DEBUG", logger="quadrat"):
        for i in range(200):
            collator.return_tensors = type(f"Framework{'x' * i}", (), {})()
            outcome(collator, [GOOD])
    assert len(collator._quadrat_fell_back) == len(caplog.records) <= 64
