"""patch_transformers: quadrat's collators under the names of transformers, and back."""

import operator
import pickle
import re

import datasets
import pytest
import transformers
import transformers.trainer
from hypothesis import given
from hypothesis import strategies as st
from transformers import trainer_pt_utils
from transformers.data import data_collator

import quadrat
from quadrat._names import load
from quadrat.installed import originals
from support.compare import assert_same_outcome, generator_states, outcome
from support.isolated import words
from support.patched import picture
from support.samples import CLASSES, batch, make, tokenizer
from support.strategies import features

OF_TRAINER = [name for name in originals.OF_TRAINER if hasattr(trainer_pt_utils, name)]
SWAPPED = sorted({*CLASSES, "default_data_collator", *OF_TRAINER})
PLACES = [transformers, transformers.data, data_collator, trainer_pt_utils, transformers.trainer]


@pytest.mark.parametrize("name", SWAPPED)
def test_names_lead_to_ours(name):
    places = [place for place in PLACES if hasattr(place, name)]
    before = [getattr(place, name) for place in places]
    with quadrat.patch_transformers():
        assert [getattr(place, name) for place in places] == [load(name)] * len(places)
    assert [getattr(place, name) for place in places] == before
    assert load(name) not in before
    assert {original.__module__.partition(".")[0] for original in before} == {"transformers"}


def test_containers_pickled_inside():
    original = trainer_pt_utils.EvalLoopContainer
    with quadrat.patch_transformers():
        pickled = pickle.dumps(original())
    assert original.__module__ == "transformers.trainer_pt_utils"
    assert type(pickle.loads(pickled)) is original
    with pytest.raises(TypeError, match="not a collator that"):
        quadrat.from_transformers(original())


@pytest.mark.parametrize("name", ["patch", "patch_transformers", "tokenizers.patch_tokenizers", "data.patch_datasets"])
@pytest.mark.filterwarnings("ignore")  # what TRL's dependencies say when they are imported
def test_undone_in_any_order(name):
    patch = operator.attrgetter(name)(quadrat)
    with patch():  # which loads what it patches
        pass
    before, outer = picture(), patch()
    inside = picture()
    assert inside != before
    with patch() as inner:
        assert outer is not inner
        outer.undo()
        assert picture() == inside
    for _ in range(2):
        inner.undo(), outer.undo()
        assert picture() == before
    with pytest.raises(ZeroDivisionError), patch():
        raise ZeroDivisionError
    assert picture() == before
    with pytest.raises(RuntimeError, match=rf"undone.*call quadrat\.{re.escape(name)}\(\) for a new one"), outer:
        pass


PARTS = {
    "datasets": (datasets.Dataset, "__getitems__"),
    "tokenizers": (transformers.PreTrainedTokenizerBase, "pad"),
}


@pytest.mark.parametrize("part", PARTS)
def test_parts_that_are_left_out(part):
    before = getattr(*PARTS[part])
    with quadrat.patch_transformers():
        assert getattr(*PARTS[part]) is not before
    with quadrat.patch_transformers(**{part: False}):
        assert getattr(*PARTS[part]) is before
        assert transformers.DataCollatorWithPadding is quadrat.DataCollatorWithPadding


def test_what_others_put_there_stays():
    class Theirs:
        pass

    original = transformers.DataCollatorWithPadding
    try:
        with quadrat.patch_transformers():
            transformers.DataCollatorWithPadding = Theirs
        assert transformers.DataCollatorWithPadding is Theirs
        transformers.DataCollatorWithPadding = quadrat.DataCollatorWithPadding  # by hand, before the patch
        with quadrat.patch_transformers():
            pass
        assert transformers.DataCollatorWithPadding is quadrat.DataCollatorWithPadding
    finally:
        transformers.DataCollatorWithPadding = original


@pytest.mark.slow
def test_modules_that_are_loaded_later_or_twice():
    output = words("""
import gc, sys, quadrat, transformers
name, first = "DataCollatorWithPadding", transformers
quadrat.DataCollatorWithPadding
vars(first).pop(name, None)
assert "transformers.trainer" not in sys.modules
with quadrat.patch_transformers():
    assert name not in vars(first)
    ours = getattr(first, name)
    import transformers.trainer, transformers.trainer_seq2seq
    second = transformers
    assert ours is quadrat.DataCollatorWithPadding is transformers.trainer.DataCollatorWithPadding
    assert transformers.trainer.default_data_collator is quadrat.default_data_collator
    assert ours is getattr(second, name) and name in vars(first) and name in vars(second)
assert name not in vars(first) and name not in vars(second)
original = transformers.data.data_collator.DataCollatorWithPadding
assert original is not ours and original is getattr(second, name) is transformers.trainer.DataCollatorWithPadding
assert transformers.trainer.default_data_collator is transformers.default_data_collator
assert transformers.default_data_collator is not quadrat.default_data_collator
# Loading Trainer has put another module in the place of the first.
assert first is not second, "then there is nothing to test here any more"
assert original is getattr(first, name)
gc.freeze()  # from here on the collector knows nothing of them
with quadrat.patch_transformers():
    assert ours is getattr(first, name) is getattr(second, name)
assert original is getattr(first, name) is getattr(second, name)
print("done")
""")
    assert output == ["done"]


@pytest.mark.parametrize("framework", ["pt", "np", "wrong"])
@pytest.mark.parametrize("name", CLASSES)
def test_same_batches_inside(name, framework):
    outcomes = []

    def collate(collator):
        transformers.set_seed(0)
        outcomes.append((outcome(collator, batch(name)), generator_states()))

    old, ours = [make(module, name, return_tensors=framework) for module in (transformers, quadrat)]
    fresh = [make(transformers, name, return_tensors=framework) for _ in range(2)]
    collate(make(transformers, name, return_tensors=framework))
    with quadrat.patch_transformers():
        made_inside = make(transformers, name, return_tensors=framework)
        assert type(made_inside) is load(name)
        collate(made_inside)
        collate(old)
        collate(ours)
        with quadrat.patch_transformers():
            collate(fresh[0])
        made_to_last = make(transformers, name, return_tensors=framework)
    collate(fresh[1])
    collate(made_to_last)
    collate(make(quadrat, name, return_tensors=framework))
    for result, states in outcomes[1:]:
        assert_same_outcome(outcomes[0][0], result)
        assert states == outcomes[0][1]


def test_default_collators_inside():
    references = {"pt": data_collator.torch_default_data_collator, "np": data_collator.numpy_default_data_collator}
    instances = {framework: transformers.DefaultDataCollator(return_tensors=framework) for framework in references}
    function = transformers.default_data_collator

    @given(features(equal=True) | features(), st.sampled_from(["pt", "np"]))
    def check(rows, framework):
        expected = outcome(references[framework], rows)
        assert_same_outcome(expected, outcome(instances[framework], rows))
        assert_same_outcome(expected, outcome(transformers.DefaultDataCollator(return_tensors=framework), rows))
        for call in (function, transformers.default_data_collator, quadrat.default_data_collator):
            assert_same_outcome(expected, outcome(lambda batch, call=call: call(batch, framework), rows))

    with quadrat.patch_transformers():
        assert transformers.default_data_collator is quadrat.default_data_collator
        check()


class FromBefore(transformers.DataCollatorWithPadding):
    def __call__(self, features):
        return {"mine": super().__call__(features)["input_ids"]}


def test_classes_of_ones_own():
    rows = batch("DataCollatorWithPadding")
    expected = make(transformers, "DataCollatorWithPadding")(rows)["input_ids"].tolist()
    with quadrat.patch_transformers():

        class FromWithin(transformers.DataCollatorWithPadding):
            def __call__(self, features):
                return {"mine": super().__call__(features)["input_ids"]}

        assert issubclass(FromWithin, quadrat.DataCollatorWithPadding)
        for cls in (FromBefore, FromWithin):
            assert cls(tokenizer(), pad_to_multiple_of=4)(rows)["mine"].tolist() == expected
    assert FromWithin(tokenizer(), pad_to_multiple_of=4)(rows)["mine"].tolist() == expected


@pytest.mark.parametrize("module", [transformers, quadrat])
@pytest.mark.parametrize("name", CLASSES)
def test_pickles_made_inside(name, module):
    collator, function = pair = make(module, name), module.default_data_collator
    with quadrat.patch_transformers():
        pickled = pickle.dumps(pair)
        loaded = [pickle.loads(pickled)]
    loaded.append(pickle.loads(pickled))
    for again, same_function in loaded:
        assert type(again) is type(collator)
        assert set(vars(again)) == set(vars(collator))
        assert same_function is function


@pytest.mark.slow
def test_pickles_cross_to_a_process_without_the_patch(tmp_path):
    collators = [transformers.DataCollatorWithPadding(None, max_length=7), transformers.default_data_collator]
    with quadrat.patch_transformers():
        collators += [transformers.DataCollatorWithPadding(None, max_length=7), transformers.default_data_collator]
        (tmp_path / "collators").write_bytes(pickle.dumps(collators))
    output = words(f"""
import pathlib, pickle
collators = pickle.loads(pathlib.Path({str(tmp_path / "collators")!r}).read_bytes())
import quadrat, transformers
assert [type(collators[0]), collators[1]] == [transformers.DataCollatorWithPadding, transformers.default_data_collator]
assert [type(collators[2]), collators[3]] == [quadrat.DataCollatorWithPadding, quadrat.default_data_collator]
assert collators[0].max_length == collators[2].max_length == 7
print("done")
""")
    assert output == ["done"]


def test_pickles_from_before_become_ours():
    pickled = pickle.dumps(transformers.DataCollatorWithPadding(tokenizer(), pad_to_multiple_of=4))
    with quadrat.patch_transformers():
        collator = pickle.loads(pickled)
    assert type(collator) is quadrat.DataCollatorWithPadding
    assert vars(collator).keys() == vars(quadrat.DataCollatorWithPadding(None)).keys()
    collator(batch("DataCollatorWithPadding"))
    assert "_quadrat_pt" in vars(collator), "the batch was remembered"
