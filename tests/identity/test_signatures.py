"""Collators show their options: the reference's, and after them quadrat's own."""

import copy
import inspect
import pickle
import re

import pytest

import quadrat
from quadrat.collators import _base
from quadrat.installed.originals import ORIGINALS
from support.samples import CLASSES, tokenizer

KEYWORDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@pytest.mark.parametrize("name", CLASSES)
def test_every_option_is_in_the_signature(name):
    options = inspect.signature(getattr(quadrat, name)).parameters
    assert not any(option.kind in KEYWORDS for option in options.values())
    assert all(option.annotation is not option.empty for option in options.values())
    assert "deferred" in options
    theirs = inspect.signature(ORIGINALS[name]).parameters.values()
    named = [option for option in theirs if option.kind not in KEYWORDS]
    if name != "DataCollatorWithFlattening":
        assert [(option.name, option.default) for option in list(options.values())[: len(named)]] == [
            (option.name, option.default) for option in named
        ]
    assert {option.name for option in named} <= options.keys()
    # An option that means nothing without another is a field of it.
    assert len(options.keys() - {"tf_experimental_compile"}) <= 18


@pytest.mark.parametrize("name", CLASSES)
def test_an_option_that_there_is_not(name):
    required = {} if name in ("DataCollatorWithFlattening", "DefaultDataCollator") else {"tokenizer": tokenizer()}
    with pytest.raises(TypeError, match="unexpected keyword argument 'pading'"):
        getattr(quadrat, name)(**required, pading=True)


@pytest.mark.parametrize(("wrong", "right"), [("pad_multiple_of", "pad_to_multiple_of"), ("pading", "padding")])
def test_an_option_that_is_nearly_one(wrong, right):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{wrong}'. Did you mean '{right}'?"):
        quadrat.DataCollatorWithPadding(tokenizer(), **{wrong: 8})


@pytest.mark.parametrize("name", ["DataCollatorForLanguageModeling", "DataCollatorForTokenClassification"])
@pytest.mark.parametrize("option", [*quadrat.Flattening._fields, "return_flash_attn_kwargs"])
def test_options_of_batches_without_padding_are_in_their_record(name, option):
    field = 'kwargs_for="transformers"' if option == "return_flash_attn_kwargs" else rf"{option}=..."
    advice = re.escape(f"{name} has no {option}: give padding_free=quadrat.Flattening({field})")
    with pytest.raises(TypeError, match=advice):
        getattr(quadrat, name)(tokenizer(), padding_free=True, **{option: 2})


def test_known_options_need_no_signature(monkeypatch):
    """`inspect.signature` takes longer than a small batch."""
    monkeypatch.setattr(_base, "parameters_of", None)
    assert quadrat.DataCollatorWithPadding(tokenizer(), pad_to_multiple_of=8, deferred=True).deferred
    assert not quadrat.DataCollatorForLanguageModeling(tokenizer=tokenizer(), mlm=False).mlm


def test_subclasses_have_their_own_signature():
    class Mine(quadrat.DataCollatorForPermutationLanguageModeling):
        def __init__(self, mine, **options):
            super().__init__(**options)
            self.mine = mine

    assert list(inspect.signature(Mine).parameters) == ["mine", "options"]
    collator = Mine(3, tokenizer=tokenizer(), deferred=True)
    assert (collator.mine, collator.deferred) == (3, True)


def test_own_options_are_shown_where_they_are_used():
    collator = quadrat.DataCollatorWithFlattening(separator_id=3)
    assert repr(collator) == "DataCollatorWithFlattening(return_tensors='pt')"  # as the reference's
    collator = quadrat.DataCollatorWithFlattening("np", separator_id=3, kwargs_for="mask")
    shown = "DataCollatorWithFlattening(return_tensors='np', separator_id=3, kwargs_for='mask')"
    for instance in (collator, copy.deepcopy(collator), pickle.loads(pickle.dumps(collator))):
        assert repr(instance) == shown
    if "DataCollatorForWholeWordMask" in CLASSES:
        words = quadrat.DataCollatorForWholeWordMask(tokenizer())
        assert "deferred" not in repr(words)
        words.deferred = True
        assert repr(words).endswith(", deferred=True)")
