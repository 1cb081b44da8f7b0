"""What the user's code does while features are read: rows move, and errors come out as those of the reference."""

import asyncio
import gc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.overrides import TorchFunctionMode

import quadrat
from quadrat.planning.fallback import FallBack, or_fall_back
from support import samples
from support.compare import assert_same_batch
from support.ingest import move
from support.mappings import Lazy, Lookalike
from support.strategies import make_tokenizer


def features_of(form: str, count: int) -> list[Any]:
    def row(values: list[Any]) -> Any:
        return np.array(values) if form == "array" else torch.tensor(values)

    return [
        {
            "input_ids": row([5 + (at + i) % 390 for i in range(1000)]),
            "scores": row([at + i / 8 for i in range(1000)]),
            "number": np.float64(at) if form == "array" else torch.tensor(at / 2),
        }
        for at in range(count)
    ]


class Mover:
    """Moves rows of a batch whenever it is called."""

    def __init__(self, features: list[Any]) -> None:
        self.calls = 0
        rows = [value for feature in features for value in feature.values()]
        self._rows = [row for row in (*rows[:9], *rows[-9:]) if isinstance(row, (np.ndarray, torch.Tensor))]

    def __call__(self) -> None:
        self.calls += 1
        for row in self._rows:
            move(row)


class Acting(TorchFunctionMode):
    def __init__(self, act: Mover) -> None:
        super().__init__()
        self._act = act

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._act()
        return func(*args, **(kwargs or {}))


class Garbage:
    """A cycle that does something when it is collected, and leaves another one."""

    act: Any = None

    def __init__(self) -> None:
        self._self = self

    def __del__(self) -> None:
        if Garbage.act is not None:
            Garbage.act()
            Garbage()


class Tokenizer(transformers.PreTrainedTokenizerFast):
    """Does something when it is asked for its padding token."""

    act: Any = None

    @property
    def pad_token_id(self) -> int:
        if Tokenizer.act is not None:
            Tokenizer.act()
        return 0


def mapping(collator: Any, features: list[Any], act: Mover) -> Any:
    return collator([*features[:-1], Lazy(features[-1], act)])


def key(collator: Any, features: list[Any], act: Mover) -> Any:
    lookalikes = {Lookalike(name, act): 0 for name in features[-1]}
    return collator([*features[:-1], {**lookalikes, **features[-1]}])


def mode(collator: Any, features: list[Any], act: Mover) -> Any:
    with Acting(act):
        return collator(features)


def attribute(collator: Any, features: list[Any], act: Mover) -> Any:
    """A method of torch's with another in front of it."""

    def answer() -> bool:
        act()
        return False

    for feature in features:
        for row in feature.values():
            if isinstance(row, torch.Tensor):
                row.is_neg = answer
    return collator(features)


def tokenizer(collator: Any, features: list[Any], act: Mover) -> Any:
    Tokenizer.act = act
    try:
        return collator(features)
    finally:
        Tokenizer.act = None


def garbage(collator: Any, features: list[Any], act: Mover) -> Any:
    """Collected as often as CPython can, which up to 3.11 is whenever a container is made."""
    thresholds = gc.get_threshold()
    gc.collect()
    Garbage.act = act
    Garbage()
    gc.set_threshold(1)
    try:
        return collator(features)
    finally:
        gc.set_threshold(*thresholds)
        Garbage.act = None
        gc.collect()


WAYS = [mapping, key, mode, attribute, tokenizer, garbage]
CALLED = [mapping, key, garbage]  # in every batch
COLLATORS = {
    "DataCollatorWithPadding": {},
    "DataCollatorForLanguageModeling": {"mlm": False},
    "DataCollatorWithFlattening": {},
    "DefaultDataCollator": {},
}


def make(module: Any, name: str, **options: Any) -> Any:
    arguments = (
        () if name in ("DataCollatorWithFlattening", "DefaultDataCollator") else (make_tokenizer(cls=Tokenizer),)
    )
    return getattr(module, name)(*arguments, **{**COLLATORS[name], **options})


def at_rest(name: str, form: str, count: int, **options: Any) -> Any:
    """The reference's batch of rows that nothing moves; older ones flatten lists only."""
    features = features_of(form, count)
    if name == "DataCollatorWithFlattening":
        features = [{"input_ids": feature["input_ids"].tolist()} for feature in features]
    return make(transformers, name, **options)(features)


# Without tensors for NumPy's default collation, which is the reference's own code, and reads what has moved itself.
CASES = [
    (name, framework, form, way)
    for name in sorted(COLLATORS)
    for framework in ("pt", "np")
    for form in ("array", "tensor")
    for way in WAYS
    if (name, framework, form) != ("DefaultDataCollator", "np", "tensor")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "framework", "form", "way"), CASES)
def test_rows_that_move(name, framework, form, way):
    count = 70  # more than are walked at once
    expected = at_rest(name, form, count, return_tensors=framework)
    collator = make(quadrat, name, return_tensors=framework)
    for known in (False, True):
        features = features_of(form, count)
        act = Mover(features)
        assert_same_batch(expected, way(collator, features, act))
        assert act.calls > 0 or way not in CALLED, known


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("form", ["array", "tensor"])
@pytest.mark.parametrize("name", sorted(COLLATORS))
def test_rows_of_a_deferred_batch_that_move(name, form, way):
    expected = at_rest(name, form, 20)
    collator = make(quadrat, name, deferred=True)
    for _ in range(2):
        features = features_of(form, 20)
        assert_same_batch(expected, way(collator, features, Mover(features)).to("cpu"))


@pytest.mark.parametrize("way", [mode, attribute, garbage], ids=lambda way: way.__name__)
@pytest.mark.parametrize("form", ["array", "tensor"])
def test_rows_that_move_while_a_function_reads_them(form, way):
    features = features_of(form, 20)
    expected = quadrat.pad([feature["scores"] for feature in features], return_tensors="np")
    got = way(lambda rows: quadrat.pad([feature["scores"] for feature in rows]), features, Mover(features))
    assert np.array_equal(np.asarray(got), expected)


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
    collators = samples.pair(name)
    for collator in collators:
        collator(samples.batch(name))  # a kind of batch that is known
    return collators


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


class ActingTokenizer(transformers.PreTrainedTokenizerFast):
    act: Any = None

    def get_special_tokens_mask(self, *arguments: Any, **keywords: Any) -> Any:
        if self.act is not None:
            self.act()
        return super().get_special_tokens_mask(*arguments, **keywords)


@pytest.mark.parametrize("error", PASS)
@pytest.mark.parametrize("framework", ["pt", "np"])
def test_by_a_tokenizer(error, framework):
    rows = samples.batch("DataCollatorForPermutationLanguageModeling")
    tokenizer = make_tokenizer(cls=ActingTokenizer)
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
