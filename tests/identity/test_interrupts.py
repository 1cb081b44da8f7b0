"""Errors from the user's own code, raised once: those that end a program, and others, come out as the reference's."""

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import transformers

import quadrat
from quadrat.planning.fallback import FallBack, or_fall_back
from support import samples
from support.mappings import Lazy, Lookalike
from support.strategies import make_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:DataCollatorForWholeWordMask is only suitable")

# Nothing may catch these: not the collator, and not its second try by the reference.
PASS = [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, MemoryError]
ERRORS = [*PASS, ValueError, KeyError, IndexError, AttributeError, RecursionError, StopIteration]


class Once:
    """Raises an error at the nth call, and no more."""

    def __init__(self, error: type[BaseException], at: int) -> None:
        self._error, self.left = error, at

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise self._error("raised once")


def final_outcome(call: Callable[[Any], Any], features: Any) -> BaseException | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call(features)
        except BaseException as error:
            return error
    return None


def pair(name: str) -> list[Any]:
    made = samples.pair(name)
    for one in made:
        one(samples.batch(name))  # a kind of batch that is known
    return made


@pytest.mark.parametrize("at", [1, 2, 5])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", samples.CLASSES)
def test_by_a_mapping_that_is_read(name, error, at):
    outcomes = [
        final_outcome(collator, [*rows[:-1], Lazy(rows[-1], Once(error, at))])
        for collator, rows in zip(pair(name), (samples.batch(name), samples.batch(name)), strict=True)
    ]
    assert type(outcomes[0]) is type(outcomes[1]), outcomes


@pytest.mark.parametrize("error", PASS)
@pytest.mark.parametrize("name", samples.CLASSES)
def test_by_a_key_that_is_compared(name, error):
    rows = samples.batch(name)
    once = Once(error, 0)
    rows[-1] = {Lookalike("input_ids", once): [[0], [0]], **rows[-1]}
    collator = pair(name)[1]
    once.left = 1
    raised = final_outcome(collator, rows)
    assert type(raised) is error


class Tokenizer(transformers.PreTrainedTokenizerFast):
    act: Any = None

    def get_special_tokens_mask(self, *arguments: Any, **keywords: Any) -> Any:
        if self.act is not None:
            self.act()
        return super().get_special_tokens_mask(*arguments, **keywords)


@pytest.mark.parametrize("error", PASS)
@pytest.mark.parametrize("framework", ["pt", "np"])
def test_by_a_tokenizer(error, framework):
    rows = samples.batch("DataCollatorForPermutationLanguageModeling")
    tokenizer = make_tokenizer(cls=Tokenizer)
    tokenizer.mask_token = tokenizer.cls_token = tokenizer.sep_token = "w3"
    collator = quadrat.DataCollatorForPermutationLanguageModeling(tokenizer, return_tensors=framework)
    collator(rows)
    tokenizer.act = Once(error, 1)
    assert type(final_outcome(collator, rows)) is error


@pytest.mark.parametrize("error", ERRORS)
def test_by_what_is_tried_before_the_reference(error):
    with pytest.raises(error if error in PASS else FallBack), or_fall_back("why"):
        raise error


@pytest.mark.parametrize("error", [*PASS, ValueError])
def test_by_words_that_are_read(error):
    class Words:
        """Offsets in an array of one's own."""

        def __getattr__(self, name: str) -> Any:
            raise error("raised")

    options = {"whole_word_mask": True, "mask_replace_prob": 1.0, "random_replace_prob": 0.0, "seed": None}
    collator = samples.make(quadrat, "DataCollatorForLanguageModeling", **options)
    rows = samples.batch("DataCollatorForLanguageModeling")
    good = [{**row, "word_ids": list(range(len(row["input_ids"])))} for row in rows]
    collator(good)
    raised = final_outcome(collator, [*good[:-1], {**good[-1], "word_ids": Words()}])
    assert type(raised) is error
