"""Versions that quadrat was not tested with: one warning, and batches of the reference; tested ones: no word."""

import copy
import inspect
import pickle

import numpy as np
import pytest
import torch
import transformers
from transformers import trainer_pt_utils

import quadrat
from quadrat import _core
from quadrat._names import load
from quadrat.installed import imitated
from quadrat.installed.source import fingerprint, functions_of, source_of
from quadrat.installed.tested import FINGERPRINTS, RANGES
from quadrat.support.extras import is_within
from support.compare import assert_same_batch
from support.samples import CLASSES, batch, make

CACHED = (imitated.changed, imitated._warn_of, imitated._broken)
TESTED = {name for name, found in imitated.CODE.items() if found is not None}
PADDED = sorted(name for name in CLASSES if "PreTrainedTokenizerBase._pad" in imitated.IMITATED.get(name, ()))


@pytest.fixture
def anew(monkeypatch):
    """What is installed counts as tested, and is looked up again, before the test and after it."""
    monkeypatch.delenv("QUADRAT_UNTESTED", raising=False)
    monkeypatch.setattr(imitated, "version", lambda package: RANGES[package][1])
    monkeypatch.setattr(imitated, "FINGERPRINTS", {name: (fingerprint(imitated.CODE[name]),) for name in TESTED})
    for cached in CACHED:
        cached.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    for cached in CACHED:
        cached.cache_clear()


@pytest.fixture
def unknown(anew):
    """A transformers whose `_pad` is another."""
    anew.setitem(imitated.CODE, "PreTrainedTokenizerBase._pad", test_one_function_after_the_other)
    return anew


def calls(collator, monkeypatch):
    """Counts the batches that the reference makes."""
    made, reference = [], type(collator)._reference

    def counted(self, framework):
        made.append(framework)
        return reference(self, framework)

    monkeypatch.setattr(type(collator), "_reference", counted)
    return made


@pytest.mark.skipif(imitated.trusted(), reason="`make matrix` runs versions before they are known")
def test_tested_code_is_known():
    assert {name: imitated.changed(name) for name in imitated.IMITATED} == dict.fromkeys(imitated.IMITATED)
    assert imitated.broken("pt") is None
    assert set(FINGERPRINTS) >= TESTED


@pytest.mark.parametrize("name", PADDED)
def test_unknown_code_is_left_to_the_reference(name, unknown):
    collator = make(quadrat, name)
    made = calls(collator, unknown)
    expected = make(transformers, name)(batch(name))
    with pytest.warns(UserWarning, match=r"does not know `PreTrainedTokenizerBase._pad` of transformers") as said:
        got = collator(batch(name))
    assert "QUADRAT_UNTESTED=1" in str(said[0].message)
    assert len(said) == 1
    if name != "DataCollatorForLanguageModeling":
        assert_same_batch(expected, got)
    collator(batch(name))
    assert len(made) == 2, "both batches, and without another warning"


def test_warns_once_of_all_collators(unknown):
    with pytest.warns(UserWarning, match="does not know") as said:
        made = [make(quadrat, name)(batch(name)) for name in PADDED]
    assert len(made) > 3
    assert len(said) == 1


def test_the_environment_may_say_to_go_on(unknown):
    unknown.setenv("QUADRAT_UNTESTED", "1")
    collator = make(quadrat, "DataCollatorWithPadding")
    made = calls(collator, unknown)
    expected = make(transformers, "DataCollatorWithPadding")(batch("DataCollatorWithPadding"))
    assert_same_batch(expected, collator(batch("DataCollatorWithPadding")))
    assert made == []


def test_batches_of_quadrats_own_go_on(unknown):
    collator = make(quadrat, "DataCollatorForTokenClassification", padding_free=True)
    made = calls(collator, unknown)
    assert "position_ids" in collator(batch("DataCollatorForTokenClassification"))
    assert made == []


def test_tokenizer_pad(unknown):
    tokenizer = make(transformers, "DataCollatorWithPadding").tokenizer
    rows = batch("DataCollatorWithPadding")
    expected = tokenizer.pad(rows, return_tensors="np")
    with pytest.warns(UserWarning, match="does not know"):
        got = quadrat.tokenizers.tokenizer_pad(tokenizer, rows, return_tensors="np")
    assert_same_batch(expected, got)


LENGTHS = [3, 9, 4, 8, 1, 7, 7, 2, 5, 6, 11, 12]
SAMPLERS = {
    "LengthGroupedSampler": lambda cls: cls(2, lengths=LENGTHS),
    "DistributedLengthGroupedSampler": lambda cls: cls(2, num_replicas=2, rank=1, lengths=LENGTHS),
    "BatchRebalanceSampler": lambda cls: cls(LENGTHS, 6, dp_size=2, grad_accum=1),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(name, anew):
    if not hasattr(trainer_pt_utils, name):
        pytest.skip("this transformers has no such sampler")
    sampler = SAMPLERS[name](load(name))
    anew.setitem(imitated.CODE, name, test_samplers)
    for kernel in ("group_by_length", "rebalance_batches"):
        anew.setattr(_core, kernel, None)
    torch.manual_seed(0)
    expected = list(SAMPLERS[name](getattr(trainer_pt_utils, name)))
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match=f"does not know `{name}`"):
        assert list(sampler) == expected


def test_the_container_of_an_evaluation(anew):
    before = quadrat.EvalLoopContainer()
    imitated.changed.cache_clear()
    anew.setitem(imitated.CODE, "nested_concat", test_the_container_of_an_evaluation)
    with pytest.warns(UserWarning, match="does not know `nested_concat`"):
        container = quadrat.EvalLoopContainer(True, -1)
    assert type(container) is trainer_pt_utils.EvalLoopContainer
    assert container.padding_index == -1
    for ragged in (own := quadrat.EvalLoopContainer(ragged=True), pickle.loads(pickle.dumps(own)), copy.copy(own)):
        assert type(ragged) is quadrat.EvalLoopContainer
    for one in (container, copied := pickle.loads(pickle.dumps(before))):
        one.add(torch.tensor([[1, 2]]))
        one.add(torch.tensor([[3]]))
        one.to_cpu_and_numpy()
    assert container.get_arrays().tolist() == [[1, 2], [3, -1]]
    assert copied.get_arrays().tolist() == [[1, 2], [3, -100]]


@pytest.mark.parametrize("works", [True, False])
def test_untested_libraries(works, anew):
    anew.setattr(imitated, "version", lambda name: "99.1.0" if name == "numpy" else "2.13.0")
    if not works:
        anew.setattr(imitated, "pad", lambda *_, **__: np.zeros((2, 3), np.int64))
    collator = make(quadrat, "DataCollatorWithPadding")
    made = calls(collator, anew)
    expected = make(transformers, "DataCollatorWithPadding")(batch("DataCollatorWithPadding"))
    with pytest.warns(UserWarning, match=r"was not tested with numpy 99\.1\.0") as said:
        assert_same_batch(expected, collator(batch("DataCollatorWithPadding")))
    assert len(said) == 1
    assert ("quadrat makes the batches" in str(said[0].message)) is works
    assert (made == []) is works
    if not works:
        with pytest.raises(RuntimeError, match="would get wrong batches"):
            make(quadrat, "DataCollatorForTokenClassification", padding_free=True)(
                batch("DataCollatorForTokenClassification")
            )


def test_code_without_source_goes_by_its_version(anew):
    anew.setattr(imitated, "fingerprint", lambda code: None)
    assert imitated.changed("DataCollatorWithPadding") is None
    anew.setattr(imitated, "version", lambda package: "99.0.0")
    imitated.changed.cache_clear()
    assert imitated.changed("DataCollatorWithPadding") == "DataCollatorWithPadding"


@pytest.mark.parametrize(
    ("version", "within"),
    [("2.2.0", True), ("2.14.9", True), ("2.15.0.dev1", False), ("2.1.9", False), ("3.0", False), ("?", False)],
)
def test_ranges(version, within):
    assert is_within(("2.2", "2.14"), version) is within


def test_one_function_after_the_other():
    # A comment, which does not count.
    def one(a: int = 1) -> int:
        """Nor does what it says."""

        return a  # but this does

    def other(
        a: int = 1,
    ) -> int:
        return a  # but this does

    assert source_of(one)[0].strip() == "def one(a: int = 1) -> int:"
    assert source_of(other)[-1].strip() == "return a  # but this does"
    assert len(source_of(other)) == 4
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize("name", sorted(TESTED))
def test_finds_the_whole_source(name):
    for function in functions_of(imitated.CODE[name]):
        whole = [line.strip() for line in inspect.getsource(function).splitlines()]
        found = [line.strip() for line in source_of(function)]
        assert found == [line for line in whole if line and not line.startswith("#")]
