"""Any version of transformers: each name loads or says why not; untested versions: a warning, and no fast path."""

import copy
import dataclasses
import inspect
import pickle
import warnings

import numpy as np
import pytest
import torch
import transformers
from transformers import trainer_pt_utils

import quadrat
from quadrat.cli.inspection import _what_falls_back
from quadrat.installed import imitated
from quadrat.installed.config import FINGERPRINTS, RANGES
from quadrat.installed.fingerprints import fingerprint, functions_of, source_of
from quadrat.integration.table import rows
from quadrat.planning import conversion
from quadrat.planning.remembering import guarded_options
from quadrat.support.extras import is_within
from quadrat.tokenizers.pad import _known
from support.compare import assert_same_batch, assert_seeded_alike
from support.isolated import words
from support.others import OTHERS, functions
from support.public import EVERYWHERE
from support.samples import CLASSES, batch, make, pair, tokenizer

PACKAGES = (transformers, quadrat)
CACHED = (imitated.changed, imitated._warn_of, imitated._broken)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what TRL's dependencies say when they are imported
    ROWS = rows()
TESTED = {name for name, code in imitated.CODE.items() if code is not None}
PADDED = sorted(name for name in CLASSES if name in ROWS and "PreTrainedTokenizerBase._pad" in ROWS[name].reference)


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


@pytest.mark.skipif(imitated.trusted(), reason="`make matrix` runs versions before they are known")
def test_tested_code_is_known():
    assert {name: imitated.changed(row) for name, row in ROWS.items()} == dict.fromkeys(ROWS)
    assert imitated.broken("pt") is None
    assert set(FINGERPRINTS) >= TESTED


def test_warns_once_of_all_collators(unknown):
    """They fall back all the same."""
    collators = [(make(quadrat, name), name) for name in PADDED]
    quadrat.stats(reset=True)
    with pytest.warns(UserWarning, match="does not know .*QUADRAT_UNTESTED=1") as record:
        assert all(collator(batch(name)) for collator, name in [*collators, *collators])
    assert len(collators) > 3
    assert len(record) == 1
    assert quadrat.stats()[:3] == (0, 0, 2 * len(collators))


def test_batches_of_quadrats_own_go_on(unknown):
    quadrat.stats(reset=True)
    collator = make(quadrat, "DataCollatorForTokenClassification", padding_free=True)
    assert "position_ids" in collator(batch("DataCollatorForTokenClassification"))
    assert quadrat.stats().fell_back == 0


def test_the_container_of_an_evaluation(anew):
    before = quadrat.evaluation.EvalLoopContainer()
    imitated.changed.cache_clear()
    anew.setitem(imitated.CODE, "nested_concat", test_the_container_of_an_evaluation)
    with pytest.warns(UserWarning, match="does not know `nested_concat`"):
        container = quadrat.evaluation.EvalLoopContainer(True, -1)
    assert type(container) is trainer_pt_utils.EvalLoopContainer
    assert container.padding_index == -1
    for instance in (container, copied := pickle.loads(pickle.dumps(before))):
        instance.add(torch.tensor([[1, 2]]))
        instance.add(torch.tensor([[3]]))
        instance.to_cpu_and_numpy()
    assert container.get_arrays().tolist() == [[1, 2], [3, -1]]
    assert copied.get_arrays().tolist() == [[1, 2], [3, -100]]


FUNCTIONS = functions(ROWS)
# Methods of trainers are called by trainers alone: test_trl_trainers.py runs those.
CALLED = [name for name in ROWS if "Trainer" not in name]
COLLATORS = [name for name in CALLED if name not in FUNCTIONS and name != "tokenizer_pad"]


def calls_of(name):
    """(the reference's call, quadrat's, features) of a row of the table."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name == imitated.PADDING_FREE:  # which has no reference: the same batch, labels too, of another class
        options = {"mlm": False, "mask_padding": "length", "padding_free": True}
        ours = quadrat.DataCollatorForLanguageModeling(tokenizer(), **options)
        return transformers.DataCollatorWithFlattening(), ours, batch("DataCollatorWithFlattening")
    if name in OTHERS:
        return OTHERS[name].reference(), OTHERS[name].ours(), OTHERS[name].batch()
    name = {"default_data_collator": "DefaultDataCollator"}.get(name, name)
    return *pair(name), batch(name)


@pytest.fixture
def becomes_unknown(anew):
    """A function that makes the code of a row another, which the environment may ask to compare."""

    def change(name, asks=""):
        anew.setenv("QUADRAT_UNTESTED", asks)
        code = imitated.TABLE[name].reference[0]
        anew.setitem(imitated.CODE, code, lambda value: value)
        for cached in CACHED:
            cached.cache_clear()
        _known.clear()
        vars(type(calls_of(name)[1])).get("_quadrat_shared", {}).clear()
        vars(conversion._function).pop("_quadrat_compared", None)
        if name == "trl.pad":
            vars(inspect.getmodule(calls_of(name)[1]))["_remembered"].cache_clear()
        quadrat.stats(reset=True)
        return code

    return change


def same(theirs, ours, inputs, times=3):
    for _ in range(times):
        assert_seeded_alike(theirs, ours, copy.deepcopy(inputs), copy.deepcopy(inputs))


@pytest.mark.parametrize("name", [name for name in CALLED if ROWS[name].reference])
def test_unknown_code_of_each_row_of_the_table(name, becomes_unknown, anew):
    """It falls back, and says so once; trusted, it does not."""
    theirs, ours, inputs = calls_of(name)
    code, library = becomes_unknown(name), ROWS[name].library
    message = rf"does not know `{code}` of {library} .* left to {library}.*QUADRAT_UNTESTED=1"
    with pytest.warns(UserWarning, match=message) as warned:
        ours(copy.deepcopy(inputs))
    assert ["does not know" in str(warning.message) for warning in warned].count(True) == 1
    theirs(copy.deepcopy(inputs))  # the same draws
    same(theirs, ours, inputs)
    assert quadrat.stats().compiled == 0
    assert f"{code} is unknown" in _what_falls_back()
    if name in COLLATORS:
        causes = {cause: count for cause, count in quadrat.stats().causes.items() if f"{code} of {library}" in cause}
        assert [cause.partition(":")[0] for cause in causes] == [type(ours).__name__]
        assert quadrat.stats().fell_back >= 4
    anew.setenv("QUADRAT_UNTESTED", "1")
    imitated.changed.cache_clear()
    vars(type(ours)).get("_quadrat_shared", {}).clear()
    quadrat.stats(reset=True)
    same(*calls_of(name)[:2], inputs)
    assert quadrat.stats().fell_back == 0


@pytest.mark.parametrize("name", [name for name in CALLED if ROWS[name].compares])
def test_batches_of_each_row_are_compared(name, becomes_unknown):
    """The first one, eight known ones and the ninth, 17th and 33rd."""
    theirs, ours, inputs = calls_of(name)
    becomes_unknown(name, "compare")
    same(theirs, ours, inputs, 40)
    assert imitated.DIFFERENCES == {}
    assert quadrat.stats().fell_back == 0
    assert quadrat.stats().compared == (12 if name in COLLATORS or name in ("tokenizer_pad", "trl.pad") else 11)


@pytest.mark.parametrize("name", COLLATORS)
def test_all_fields_are_guarded_but_for_those_that_the_row_names(name):
    cls = type(calls_of(name)[1])
    fields = {*(field.name for field in dataclasses.fields(cls)), *cls._imitates.attributes}
    assert fields - {*cls._imitates.unguarded} == {*guarded_options(cls)}


def test_a_library_that_is_installed_but_broken():
    """What is imported only to be looked at may fail: its row is left to transformers, and says so."""
    output = words("""
import sys
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "transformers.trainer_pt_utils":
            raise OSError("its C library is missing")
sys.meta_path.insert(0, Broken())
import quadrat, tokenizers, transformers
from quadrat.installed import imitated
from quadrat.integration.table import rows
words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "a": 1}))
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
with quadrat.patch_transformers():
    batch = transformers.DataCollatorWithPadding(tokenizer)([{"input_ids": [1, 1]}, {"input_ids": [1]}])
    assert batch["input_ids"].tolist() == [[1, 1], [1, 0]]
assert quadrat.stats().fell_back == 0
for name, row in rows().items():
    if imitated.changed(row) is not None:
        assert "its C library is missing" in imitated.BROKEN[imitated.changed(row)]
        print(name)
""")
    assert output == []


@pytest.mark.parametrize("works", [True, False])
def test_untested_libraries(works, anew):
    anew.setattr(imitated, "version", lambda name: "99.1.0" if name == "numpy" else "2.13.0")
    if not works:
        anew.setattr(imitated, "pad", lambda *_, **__: np.zeros((2, 3), np.int64))
    collator = make(quadrat, "DataCollatorWithPadding")
    quadrat.stats(reset=True)
    expected = make(transformers, "DataCollatorWithPadding")(batch("DataCollatorWithPadding"))
    with pytest.warns(UserWarning, match=r"was not tested with numpy 99\.1\.0") as record:
        assert_same_batch(expected, collator(batch("DataCollatorWithPadding")))
    assert len(record) == 1
    assert ("quadrat makes the batches" in str(record[0].message)) is works
    assert (quadrat.stats().fell_back == 0) is works
    if not works:
        with pytest.raises(RuntimeError, match="would get wrong batches"):
            make(quadrat, "DataCollatorForTokenClassification", padding_free=True)(
                batch("DataCollatorForTokenClassification")
            )


def test_code_without_source_goes_by_its_version(anew):
    anew.setattr(imitated, "fingerprint", lambda code: None)
    row = ROWS["DataCollatorWithPadding"]
    assert imitated.changed(row) is None
    anew.setattr(imitated, "version", lambda package: "99.0.0")
    imitated.changed.cache_clear()
    assert imitated.changed(row) == "DataCollatorWithPadding"


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


def test_annotations_are_no_code():
    class One:
        width: int = 1

        def double(self):
            return 2 * self.width

    def annotate(format):
        return {"width": int}

    before = fingerprint(One)
    annotate.__name__ = "__annotate__"  # as CPython 3.14 has it in the namespace of a class
    One.__annotate_func__ = annotate
    assert before is not None
    assert fingerprint(One) == before


@pytest.mark.parametrize("name", sorted(TESTED))
def test_finds_the_whole_source(name):
    for function in functions_of(imitated.CODE[name]):
        whole = [line.strip() for line in inspect.getsource(function).splitlines()]
        lines = [line.strip() for line in source_of(function)]
        assert lines == [line for line in whole if line and not line.startswith("#")]


# `loaded()` loads every public name, and looks at what the collators among them are derived from.
LOADED = """
import inspect, warnings
import transformers, transformers.data.data_collator as home
before = dict(vars(home))
import quadrat
from quadrat.planning.remembering import Remembering

COMMON = {"ColumnOptions", "PaddingFreeOptions", "MixinCollator", "Collator", "Imitator", "Remembering"}

def loaded():
    found = {name: getattr(quadrat, name) for name in quadrat.__all__}
    for name, value in found.items():
        if not (inspect.isclass(value) and "DataCollator" in name):
            continue
        above = [cls.__name__ for cls in value.__mro__ if issubclass(cls, Remembering)]
        languages = {"DataCollatorForLanguageModeling"} if name == "DataCollatorForWholeWordMask" else set()
        assert above[:1] == [name] and set(above[1:]) <= COMMON | languages, above
        assert any(cls in before.values() for cls in value.__mro__ if cls.__name__ != "DataCollatorMixin"), name

def collates():
    from support.samples import CLASSES, batch, make
    warnings.simplefilter("ignore", UserWarning)
    for name in CLASSES:
        assert make(quadrat, name)(batch(name))
        print(name)
"""
ORDERS = {
    "before a patch": "loaded(); quadrat.patch_transformers(); loaded(); collates()",
    "in a patch": "quadrat.patch_transformers(); loaded(); collates()",
    "after a patch": "quadrat.patch_transformers().undo(); loaded(); collates()",
    "in part before": "quadrat.DataCollatorForSeq2Seq; quadrat.patch_transformers(); loaded(); collates()",
}


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_every_name_loads(order):
    assert words(f"{LOADED}\n{ORDERS[order]}") == CLASSES


@pytest.mark.slow
def test_versions_that_are_too_old_are_refused_with_what_to_do():
    """Before 4.57 there is no `whole_word_mask`; what needs no collator goes on working."""
    names = words("""
import transformers
from transformers.data.data_collator import DataCollatorForLanguageModeling
del DataCollatorForLanguageModeling.__dataclass_fields__["whole_word_mask"]
import importlib, quadrat
from quadrat._names import PACKAGES, load
assert quadrat.pad([[1], [2, 3]]).tolist() == [[1, 0], [2, 3]]
refused = []
for name in [name for package in PACKAGES for name in importlib.import_module(package).__all__]:
    try:
        load(name)
    except ImportError as error:
        assert "need transformers 4.57 or later" in str(error), error
        assert f"{transformers.__version__} is installed" in str(error), error
        assert "pip install 'quadrat[transformers]'" in str(error), error
        refused.append(name)
print(*refused)
""")
    assert {"DataCollatorForLanguageModeling", "default_data_collator", "patch_transformers"} <= set(names)
    others = {name for name in names if "ollator" not in name} - {"patch_transformers", "from_transformers"}
    # Which use the collators, or their code.
    others -= {"patch_tokenizers", "tokenizer_pad", "convert_to_tensors", "batch_by_tokens"}
    derived = {"quadrat.batching.samplers", "quadrat.evaluation.containers"}
    assert {EVERYWHERE[name] for name in others} == derived, "they derive from those of transformers"
