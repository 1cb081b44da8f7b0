"""Bad input: the reference's exception type, and a message that names column, row, lengths and what to do."""

import contextlib
import copy
import enum
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import quadrat
from quadrat.installed import behaviour, originals
from quadrat.planning.fallback import diagnose
from support import hints, samples
from support.compare import both, check_error, outcome
from support.others import OTHERS
from support.strategies import make_tokenizer

LANGUAGE = ("ForLanguageModeling", "ForPermutationLanguageModeling")
GOOD = {"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1], "labels": [1, 2, 3]}


@pytest.mark.parametrize("multiple", [2**48 + 1, 2**62, 2**63 - 1, 2**63, 2**64])
@pytest.mark.parametrize(
    "name", [name for name in samples.CLASSES if hasattr(samples.make(quadrat, name), "tokenizer")]
)
def test_widths_beyond_any_memory(name, multiple):
    collators = [samples.make(library, name) for library in (transformers, quadrat)]
    for collator in collators:
        collator.pad_to_multiple_of = multiple  # permutation language modelling pays no attention to it
    expected, got = (outcome(collator, samples.batch(name)) for collator in collators)
    assert (got[0], type(got[1])) == (expected[0], type(expected[1]))


FEW = {"input_ids": [[5], [6, 7]], "attention_mask": [[1], [1, 1]], "label": 1}
TAGS = "DataCollatorForTokenClassification"
CHOICE, STACKED = "DataCollatorForMultipleChoice", "DefaultDataCollator"

# (collator, features, options, what the message must say), of mistakes that test_error_hints.py does not have
CASES: list[tuple[str, Any, dict[str, Any], list[str]]] = [
    (CHOICE, [FEW, {**FEW, "attention_mask": [[1]]}], {}, ["attention_mask", "row 1", "1 choices", "input_ids", "2"]),
    (CHOICE, [FEW, {**FEW, "input_ids": [[5], [6, None]]}], {}, ["row 1, choice 1, position 1", "None"]),
    (
        CHOICE,
        [FEW, {**FEW, "attention_mask": [[1], [1]]}],
        {},
        ["attention_mask", "row 1, choice 1", "length 1", "has 2"],
    ),
    (CHOICE, [{"input_ids": [], "label": 0}], {}, ["input_ids", "row 0", "0 choices"]),
    (CHOICE, [{"ids": [[5]], "label": 0}], {}, ["input_ids", "['ids', 'label']"]),
    (CHOICE, [FEW], {"padding": "max_length", "max_length": 1}, ["row 0, choice 1", "2 tokens", "max_length=1"]),
    (CHOICE, [FEW], {"padding": False}, ["input_ids", "length 1", "length 2", "padding=True"]),
    (CHOICE, [], {}, ["empty"]),
    (STACKED, [], {}, ["empty"]),
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


DAMAGES: dict[str, Callable[[Any], Any]] = {
    "None": lambda value: None,
    "None inside": lambda value: [*value[:-1], None],
    "string": lambda value: "abc",
    "strings": lambda value: ["a"] * len(value),
    "deep": lambda value: [value],
    "several": lambda value: [value, value],
    "short": lambda value: value[:-1],
    "empty": lambda value: [],
    "float": lambda value: [*value[:-1], 0.5],
    "array": lambda value: np.array([value]),
    "matrix": lambda value: torch.tensor([value]),
    "tensor": torch.tensor,
    "big": lambda value: [*value[:-1], 2**63] if isinstance(value, list) else 2**63,
    "dict": lambda value: {"a": 1},
    "number": lambda value: 5,
    "object": lambda value: object(),
    "missing": lambda value: KeyError,
}
NAMED = [*samples.CLASSES]
if not behaviour.flattening_takes_arrays():
    NAMED.remove(*hints.FLAT)  # the reference takes other rows


def damaged(good: list[dict[str, Any]]) -> Iterator[tuple[str, str, Any, list[dict[str, Any]]]]:
    """(column, damage, rows that have it, batch), whatever can be wrong in a row, or in all of them."""
    for column, (damage, change) in itertools.product(good[0], DAMAGES.items()):
        for places in ([0], [len(good) - 1], range(len(good))):
            with contextlib.suppress(TypeError, ValueError):  # no such damage to this
                wrong = [{**row, column: change(row[column])} if at in places else row for at, row in enumerate(good)]
                batch = [{key: value for key, value in row.items() if value is not KeyError} for row in wrong]
                yield column, damage, places, copy.deepcopy(batch)


def assert_tells(line: str, column: str, places: Any) -> None:
    assert f"'{column}'" in line
    every = any(words in line for words in ("in every row", "no column", "features have"))
    assert every or any(f"row {place}" in line for place in places), (places, line)
    assert any(sign in line for sign in ("; ", ": ")), line


@pytest.mark.parametrize("name", [*NAMED, *OTHERS])
def test_errors_name_column_and_row_and_say_what_to_do(name):
    good = OTHERS[name].batch() if name in OTHERS else samples.batch(name)[:3]
    reference = hints.reference_of(name)
    ours = OTHERS[name].ours() if name in OTHERS else samples.make(quadrat, name)
    for collator in (reference, ours):
        collator(copy.deepcopy(good))  # then it is a known kind
    raised = 0
    for column, damage, places, batch in damaged(good):
        (kind, expected), got = (outcome(collator, copy.deepcopy(batch)) for collator in (reference, ours))
        assert kind == got[0], (column, damage, places)
        if kind == "raised" and damage != "object":  # whose address is in messages
            raised += 1
            assert_tells(check_error(expected, got, []), column, places)
    assert raised > 20 or name in hints.FLAT


OWN = {
    "padding-free tags": (TAGS, {"padding_free": True}, {"labels": lambda n: [1] * n}),
    "padding-free, masked": ("DataCollatorForLanguageModeling", {"padding_free": True}, {}),
    "padding-free, causal": (
        "DataCollatorForLanguageModeling",
        {"padding_free": True, "mlm": False},
        {"token_type_ids": lambda n: [0] * n},
    ),
    "flattened and padded": (
        "DataCollatorWithFlattening",
        {"pad_to_multiple_of": 8, "pad_values": {"extra": 0}},
        {"labels": lambda n: [5] * n, "extra": lambda n: [1] * n},
    ),
    "one label per row": ("DataCollatorWithFlattening", {"scalar_labels": True}, {"labels": lambda n: 1}),
}


@pytest.mark.parametrize("name", OWN)
def test_errors_of_own_batches_do_so_too(name):
    cls, options, columns = OWN[name]
    good = hints.without("attention_mask")(hints.rows(4, 2, 3, **columns))
    raised = 0
    for column, _, places, batch in damaged(good):
        kind, error = outcome(samples.make(quadrat, cls, **options), batch)
        if kind == "raised":
            raised += 1
            assert_tells(str(error.args[0]), column, places)
    assert raised > 10


class Processor:
    """As processors of models for images and text: they hold a tokenizer and do not pad."""

    tokenizer = samples.tokenizer()


class Auto:
    """As `AutoTokenizer`, without files."""

    @staticmethod
    def from_pretrained(name):
        return samples.tokenizer()


# What is given as tokenizer, and what the message says.
NO_TOKENIZERS = {
    "None": (None, ["tokenizer is None"], r"for example (AutoTokenizer.*)"),
    "a name": ("bert-base-uncased", ["tokenizer is the string 'bert-base-uncased'"], r"give (AutoTokenizer.*)"),
    "a class": (transformers.BertTokenizer, ["tokenizer is the class BertTokenizer"], r"for example (BertTokenizer.*)"),
    "a Tokenizer": (samples.tokenizer()._tokenizer, ["tokenizer is a Tokenizer of the package"], r"give (.*)"),
    "a processor": (Processor(), ["tokenizer is a Processor"], r"give its tokenizer: (.*)"),
    "a dict": ({}, ["tokenizer is a dict", "give a tokenizer of transformers"], None),
}


@pytest.mark.parametrize("collator", [*hints.PADDED, *hints.MASKED[:1]])
@pytest.mark.parametrize("columns", [{}, {"labels": lambda n: [1] * n}], ids=["ids", "labels"])
@pytest.mark.parametrize("kind", NO_TOKENIZERS)
def test_no_tokenizer(kind, columns, collator):
    argument, words, pattern = NO_TOKENIZERS[kind]
    features = hints.rows(4, 4, **columns)
    both = (getattr(module, collator) for module in (transformers, quadrat))
    reference, got = (outcome(lambda tokenizer, make=make: make(tokenizer)(features), argument) for make in both)
    line = check_error(reference[1], got, words)
    if pattern is None:
        return
    source = hints.code(line, pattern).replace("pad_token=...", "pad_token='[PAD]', mask_token='w3'")
    names = {"AutoTokenizer": Auto, "BertTokenizer": Auto, "name": "bert-base-uncased", "processor": argument}
    helpful = hints.run(
        source, **names, tokenizer=argument, PreTrainedTokenizerFast=transformers.PreTrainedTokenizerFast
    )
    assert "input_ids" in getattr(quadrat, collator)(helpful)(features)


@pytest.mark.parametrize("name", [TAGS, "DataCollatorForLanguageModeling"])
def test_no_tokenizer_without_padding(name):
    options = {"mlm": False} if name in hints.LANGUAGE else {}
    with pytest.raises(TypeError, match="tokenizer is None; give the tokenizer of your model"):
        getattr(quadrat, name)(None, padding_free=True, **options)(hints.rows(4, 2))


# Name -> collators, attributes of the tokenizer, the message, and the code in it, which helps.
TOKENIZERS = {
    "no pad token": (
        [*hints.PADDED, *hints.MASKED],
        {"pad_token": None, "eos_token": "[EOS]"},
        ("has no pad token", r"; set (tokenizer\.pad_token = tokenizer\.eos_token)"),
    ),
    "no pad token and no other": (
        [*hints.PADDED, *hints.MASKED],
        {"pad_token": None, "eos_token": None},
        ("has no pad token", r"; call (tokenizer.*?\))"),
    ),
    "a mask that is not listed": (
        hints.PADDED,
        {"model_input_names": ["input_ids"]},
        ("'attention_mask' is ragged", r"add (it to tokenizer.model_input_names), which does not list it"),
    ),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, (names, *_) in TOKENIZERS.items() for name in names])
def test_tokenizers_that_do_not_pad(kind, name):
    _, attributes, (message, pattern) = TOKENIZERS[kind]
    features, tokenizer = hints.rows(4, 2), samples.tokenizer()
    for attribute, value in attributes.items():
        setattr(tokenizer, attribute, copy.copy(value))  # which the hint may change
    collators = hints.reference_of(name), samples.make(quadrat, name)
    for collator in collators:
        collator.tokenizer = tokenizer
    (happened, expected), got = (outcome(collator, features) for collator in collators)
    assert happened == "raised"
    code = hints.code(check_error(expected, got, [message]), pattern)
    code = code.replace("it to tokenizer.model_input_names", "names.append('attention_mask')")
    exec(code, {"tokenizer": tokenizer, "names": tokenizer.model_input_names})
    assert collators[1](features)["input_ids"].shape == (2, 4)


def test_columns_of_tokenizer_pad():
    """Of a mapping of columns too, and columns that differ in their number of rows."""
    tokenizer, ids = samples.tokenizer(), [[5, 6], [7]]
    for columns, message in [
        ({"input_ids": ids, "attention_mask": [[1, 1], None]}, "column 'attention_mask', row 1 is None"),
        ({"input_ids": ids, "attention_mask": [[1, 1]]}, "column 'attention_mask' has 1 rows where 'input_ids' has 2"),
        ({"input_ids": ids, "attention_mask": None}, "column 'attention_mask' is None; give a list with a value for"),
        ({"input_ids": ids, "label": ["a", "b"]}, "column 'label', row 0 is the string 'a'"),
    ]:
        pads = originals.PAD, quadrat.tokenizers.tokenizer_pad
        calls = (functools.partial(pad, tokenizer, return_tensors="pt") for pad in pads)
        expected, got = (outcome(call, dict(columns)) for call in calls)
        check_error(expected[1], got, [message])


@pytest.mark.parametrize("name", [TAGS, *(f"DataCollator{suffix}" for suffix in ("WithPadding", *LANGUAGE))])
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
        messages: list[Any] = []
        count = calls_of(lambda: messages.append(diagnose(features, collator)))
        assert "'extra' is ragged" in messages[0]
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


@pytest.mark.skipif(not hints.MASKED[1:], reason="only the collator of 4.57 falls back for reasons with positions")
def test_reasons_are_logged_by_kind(caplog):
    """Not by their words, which name rows and positions: a collator would keep and say another for every batch."""
    collator = samples.make(quadrat, *hints.MASKED[1:])
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
