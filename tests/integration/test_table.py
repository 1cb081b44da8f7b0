"""The table of what is imitated: the same checks for each row."""

import copy
import dataclasses
import functools
import warnings
from typing import Any

import datasets
import pytest
import torch
import transformers
from transformers import BatchEncoding, trainer_pt_utils

import quadrat
from quadrat.cli.inspection import _what_falls_back
from quadrat.installed import imitated, originals
from quadrat.installed.behaviour import numpy_token_labels_are_like_torch
from quadrat.installed.imitated import PADDING_FREE
from quadrat.integration.table import rows
from quadrat.planning import conversion
from quadrat.planning.conversion import convert_to_tensors
from quadrat.planning.remembering import guarded_options
from quadrat.tokenizers.pad import _known
from support import samples
from support.compare import assert_seeded_alike
from support.others import OTHERS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    TABLE = rows()

TOKENIZER = samples.tokenizer()
EQUAL = [{"input_ids": [n, n + 1], "attention_mask": [1, 1]} for n in (3, 4)]


def gathered(cls: Any, batches: Any) -> Any:
    container = cls()
    for batch in batches:
        container.add(batch)
    return container.get_arrays()


def encoded(convert: Any, features: Any) -> Any:
    return convert(BatchEncoding({name: [row[name] for row in features] for name in features[0]}), "pt")


def ordered(cls: Any, dataset: Any) -> Any:
    return list(cls(2, dataset, generator=torch.Generator().manual_seed(1)))


def other(name: str) -> tuple[Any, Any, Any]:
    one = OTHERS[name]
    return one.reference(), one.ours(), one.batch()


# Functions: the reference's call, quadrat's, and what both are given.
FUNCTIONS: dict[str, tuple[Any, Any, Any]] = {
    "tokenizer_pad": other("tokenizer_pad"),
    "convert_to_tensors": (
        functools.partial(encoded, originals.CONVERT_TO_TENSORS),
        functools.partial(encoded, convert_to_tensors),
        EQUAL,
    ),
    "EvalLoopContainer": (
        functools.partial(gathered, trainer_pt_utils.EvalLoopContainer),
        lambda given: gathered(quadrat.evaluation.EvalLoopContainer, given),
        [torch.ones(2, n) for n in (3, 4)],
    ),
}
if "LengthGroupedSampler" in TABLE:
    FUNCTIONS["LengthGroupedSampler"] = (
        functools.partial(ordered, trainer_pt_utils.LengthGroupedSampler),
        lambda given: ordered(quadrat.batching.LengthGroupedSampler, given),
        datasets.Dataset.from_dict({"input_ids": [[7] * n for n in (5, 3, 8, 1)]}),
    )
if "trl.pad" in TABLE:
    from quadrat.trl import padding

    FUNCTIONS["trl.pad"] = (padding.Original, padding.pad, [torch.ones(n) for n in (3, 4)])
# Methods of trainers are called by trainers alone: test_online_trl.py runs those.
CALLED = [name for name in TABLE if "Trainer" not in name]
COLLATORS = [name for name in CALLED if name not in FUNCTIONS]
COMPARED = [name for name in CALLED if TABLE[name].compares]
BOTH = {"DefaultDataCollator": "default_data_collator"}  # names of classes -> of their rows
NUMPY = [BOTH.get(name, name) for name, framework in samples.BATCHES if framework == "np"]
if not numpy_token_labels_are_like_torch():  # such batches fall back
    NUMPY.remove("DataCollatorForTokenClassification")


def pair(name: str, **options: Any) -> tuple[Any, Any, Any]:
    """(the reference's call, quadrat's, features) of a row."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name == PADDING_FREE:  # which has no reference: the same batch with its labels in another class of transformers
        own = {"mlm": False, "mask_padding": "length", "padding_free": True}
        return (
            transformers.DataCollatorWithFlattening(**options),
            quadrat.DataCollatorForLanguageModeling(TOKENIZER, **own, **options),
            samples.batch("DataCollatorWithFlattening"),
        )
    if name.startswith("trl."):
        return other(name)
    name = next((one for one, row in BOTH.items() if row == name), name)
    return *samples.pair(name, **options), samples.batch(name)


@pytest.fixture
def unknown(monkeypatch):
    """A function that makes the code of a row another, which the environment may ask to compare."""

    def change(name: str, asks: str = "") -> str:
        monkeypatch.setenv("QUADRAT_UNTESTED", asks)
        code = imitated.TABLE[name].reference[0]
        monkeypatch.setitem(imitated.CODE, code, lambda one: one)
        for cached in (imitated.changed, imitated._warn_of):
            cached.cache_clear()
        _known.clear()
        vars(type(pair(name)[1])).get("_quadrat_shared", {}).clear()
        vars(conversion._function).pop("_quadrat_compared", None)
        if name == "trl.pad":
            padding._remembered.cache_clear()
        quadrat.stats(reset=True)
        return code

    yield change
    monkeypatch.undo()
    for cached in (imitated.changed, imitated._warn_of):
        cached.cache_clear()


def same(theirs: Any, ours: Any, given: Any, times: int = 3) -> None:
    for _ in range(times):
        assert_seeded_alike(theirs, ours, copy.deepcopy(given), copy.deepcopy(given))


@pytest.mark.parametrize("name", CALLED)
def test_known(name):
    theirs, ours, given = pair(name)
    assert imitated.changed(TABLE[name]) is None
    quadrat.stats(reset=True)
    same(theirs, ours, given)
    assert quadrat.stats().fell_back == 0
    if name in COLLATORS:
        assert quadrat.stats().remembered >= 2


@pytest.mark.parametrize("name", [name for name in CALLED if TABLE[name].reference])
def test_unknown(name, unknown):
    """It falls back, and says so once."""
    theirs, ours, given = pair(name)
    code, library = unknown(name), TABLE[name].library
    said = rf"does not know `{code}` of {library} .* left to {library}.*QUADRAT_UNTESTED=1"
    with pytest.warns(UserWarning, match=said) as warned:
        ours(copy.deepcopy(given))
    assert ["does not know" in str(one.message) for one in warned].count(True) == 1
    theirs(copy.deepcopy(given))  # the same draws
    same(theirs, ours, given)
    assert quadrat.stats().compiled == 0
    assert f"{code} is unknown" in _what_falls_back()
    if name in COLLATORS:
        causes = {cause: count for cause, count in quadrat.stats().causes.items() if f"{code} of {library}" in cause}
        assert [cause.partition(":")[0] for cause in causes] == [type(ours).__name__]
        assert quadrat.stats().fell_back >= 4
    with pytest.MonkeyPatch.context() as trusting:
        trusting.setenv("QUADRAT_UNTESTED", "1")
        imitated.changed.cache_clear()
        vars(type(ours)).get("_quadrat_shared", {}).clear()
        quadrat.stats(reset=True)
        same(*pair(name)[:2], given)
        assert quadrat.stats().fell_back == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in COMPARED), *((name, {"return_tensors": "np"}) for name in NUMPY)],
)
def test_compared(name, options, unknown):
    """The first one, eight known ones and the ninth, 17th and 33rd."""
    theirs, ours, given = pair(name, **options)
    unknown(name, "compare")
    quadrat.stats(reset=True)
    same(theirs, ours, given, 40)
    assert imitated.DIFFERENCES == {}
    twins = name in COLLATORS and type(theirs) is type(ours)  # where transformers has none
    assert quadrat.stats().fell_back == 0
    remembers = name in COLLATORS or name in ("tokenizer_pad", "trl.pad")
    assert quadrat.stats().compared == (12 * (1 + twins) if remembers else 11)


@pytest.mark.parametrize("name", COLLATORS)
def test_guarded_options(name):
    """All fields are guarded, but for those that the row names."""
    _, ours, _ = pair(name)
    row = type(ours)._imitates
    fields = {*(field.name for field in dataclasses.fields(ours)), *row.attributes}
    assert fields - {*row.unguarded} == {*guarded_options(type(ours))}
