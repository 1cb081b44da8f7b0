"""from_transformers: what a transformers collator holds, in quadrat's."""

import copy
import dataclasses
import inspect
import warnings

import pytest
import transformers

import quadrat
from support.compare import assert_identical, assert_same_batch, generator_states, outcome
from support.samples import CLASSES, batch, make, tokenizer
from support.strategies import make_tokenizer


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("name", CLASSES)
def test_everything_is_kept(name, framework):
    original = make(transformers, name, return_tensors=framework)
    outcome(original, batch(name))  # a seeded one has drawn by now
    original.note = object()
    before = dict(vars(original))
    states = generator_states()
    twin = quadrat.from_transformers(original)
    assert generator_states() == states
    assert type(twin) is getattr(quadrat, name)
    assert vars(original) == before
    assert all(vars(twin)[attribute] is value for attribute, value in before.items())
    further = vars(make(quadrat, name)).keys() - before.keys()
    assert vars(twin).keys() == before.keys() | further
    for attribute in further:
        fresh = getattr(make(quadrat, name), attribute)
        assert vars(twin)[attribute] == fresh, "an option of quadrat's has its default, and is there to be guarded"


REMEMBERED = ["DataCollatorWithPadding"]


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("name", CLASSES)
def test_goes_on_where_the_original_was(name, framework):
    reference = make(transformers, name, return_tensors=framework)
    outcome(reference, batch(name))
    # The generator would be shared, as everything is; here each draws for itself.
    try:
        copied = copy.deepcopy(reference)
    except TypeError:
        pytest.skip("this torch cannot copy generators")
    twin = quadrat.from_transformers(copied)
    assert_identical(reference, twin, batch(name), calls=3)
    assert f"_quadrat_{framework}" in vars(twin) or name not in REMEMBERED, "the batch was remembered"


def test_function():
    assert quadrat.from_transformers(transformers.default_data_collator) is quadrat.default_data_collator
    assert quadrat.from_transformers(quadrat.default_data_collator) is quadrat.default_data_collator


@pytest.mark.parametrize("name", CLASSES)
def test_ours_come_back_as_they_are(name):
    collator = make(quadrat, name)
    assert quadrat.from_transformers(collator) is collator
    derived = type("Derived", (type(collator),), {})
    other = copy.copy(collator)
    other.__class__ = derived
    assert quadrat.from_transformers(other) is other


def test_inside_a_patch():
    original = transformers.DataCollatorWithPadding(tokenizer())
    function = transformers.default_data_collator
    with quadrat.patch_transformers():
        assert type(quadrat.from_transformers(original)) is quadrat.DataCollatorWithPadding
        assert quadrat.from_transformers(function) is quadrat.default_data_collator
        ours = transformers.DataCollatorWithPadding(tokenizer())
        assert quadrat.from_transformers(ours) is ours


class Mine(transformers.DataCollatorWithPadding):
    def __call__(self, features):
        return {"mine": super().__call__(features)}


@pytest.mark.parametrize(
    ("collator", "message"),
    [
        (Mine(None), "Mine is derived from transformers.DataCollatorWithPadding .* derive it from quadrat"),
        (Mine, "derive it from quadrat.DataCollatorWithPadding instead"),
        (transformers.DataCollatorWithPadding, "takes an instance: use the class quadrat.DataCollatorWithPadding"),
        (len, "not a collator that from_transformers knows: .*DataCollatorWithPadding"),
        (None, "None is not a collator"),
        (make_tokenizer(), r"^a \w+ is not a collator"),
        (lambda features: features, "not a collator"),
    ],
)
def test_refused(collator, message):
    with pytest.raises(TypeError, match=message):
        quadrat.from_transformers(collator)


@pytest.mark.skipif(not hasattr(transformers, "DataCollatorForSOP"), reason="transformers has it before 5.20")
def test_without_a_twin():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        collator = transformers.DataCollatorForSOP(tokenizer())
    if "DataCollatorForLanguageModeling" in CLASSES:
        with pytest.raises(TypeError, match=r"no replacement for transformers\.DataCollatorForSOP: use it as it is"):
            quadrat.from_transformers(collator)


@pytest.mark.skipif(
    "DataCollatorForWholeWordMask" in CLASSES or not hasattr(transformers, "DataCollatorForWholeWordMask"),
    reason="transformers 5 has another class of this name before 5.20",
)
def test_another_class_of_the_same_name():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        theirs = transformers.DataCollatorForWholeWordMask(tokenizer())
    with pytest.raises(TypeError, match=r"use quadrat\.DataCollatorForWholeWordMask"):
        quadrat.from_transformers(theirs)
    ours = quadrat.DataCollatorForWholeWordMask(tokenizer())
    rows = [{"input_ids": [9, 10, 11], "offset_mapping": [(0, 2), (2, 3), (4, 6)]} for _ in range(3)]
    transformers.set_seed(0)
    expected = theirs(rows)
    transformers.set_seed(0)
    assert_same_batch(expected, ours(rows))


@dataclasses.dataclass
class Extended(quadrat.DataCollatorWithPadding):
    batches: list = dataclasses.field(default_factory=list)


def test_options_with_a_factory():
    first, second = Extended.__new__(Extended), Extended.__new__(Extended)
    for collator in (first, second):
        collator.__setstate__(vars(transformers.DataCollatorWithPadding(None, max_length=7)))
    assert (first.max_length, first.pad_values, first.batches) == (7, None, [])
    assert first.batches is not second.batches
    assert set(vars(first)) == set(inspect.signature(Extended).parameters)
