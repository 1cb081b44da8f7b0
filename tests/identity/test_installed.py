"""Whatever version of transformers is installed, every name loads in any order, or says why not."""

import inspect
from pathlib import Path

import pytest
import transformers

from quadrat.cli.advice import grouping
from support.isolated import words
from support.public import HOMES
from support.samples import CLASSES

# `loaded()` loads every public name, and looks at what the collators among them are derived from.
LOADED = """
import inspect, warnings
import transformers, transformers.data.data_collator as home
before = dict(vars(home))
import quadrat
from quadrat.planning.plan_cache import Remembering

def loaded():
    found = {name: getattr(quadrat, name) for name in quadrat.__all__}
    for name, value in found.items():
        if not (inspect.isclass(value) and "DataCollator" in name):
            continue
        above = [cls.__name__ for cls in value.__mro__ if issubclass(cls, Remembering)]
        assert above[:1] == [name] and set(above[1:]) <= {"MixinCollator", "Collator", "Remembering"}, above
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
def test_the_class_that_only_shares_its_name_is_left_alone():
    """Before 5.20 transformers 5 has a DataCollatorForWholeWordMask that masks by offsets; 4.57's is another class."""
    said = words("""
import transformers, quadrat
theirs = getattr(transformers, "DataCollatorForWholeWordMask", None)
with quadrat.patch_transformers():
    ours = getattr(transformers, "DataCollatorForWholeWordMask", None)
    swapped = ours is quadrat.DataCollatorForWholeWordMask
    assert swapped or ours is theirs
    assert swapped == hasattr(theirs, "_shuffle")
assert getattr(transformers, "DataCollatorForWholeWordMask", None) is theirs
print("done")
""")
    assert said == ["done"]


@pytest.mark.slow
def test_versions_that_are_too_old_are_refused_with_what_to_do():
    """Before 4.57 there is no `whole_word_mask`; what needs no collator goes on working."""
    said = words("""
import transformers
from transformers.data.data_collator import DataCollatorForLanguageModeling
del DataCollatorForLanguageModeling.__dataclass_fields__["whole_word_mask"]
import quadrat
assert quadrat.pad([[1], [2, 3]]).tolist() == [[1, 0], [2, 3]]
refused = []
for name in quadrat.__all__:
    try:
        getattr(quadrat, name)
    except ImportError as error:
        assert "need transformers 4.57 or later" in str(error), error
        assert f"{transformers.__version__} is installed" in str(error), error
        assert "pip install 'quadrat[transformers]'" in str(error), error
        refused.append(name)
print(*refused)
""")
    assert {"DataCollatorForLanguageModeling", "default_data_collator", "patch_transformers"} <= set(said)
    others = {name for name in said if "ollator" not in name} - {"patch_transformers", "from_transformers"}
    others -= {"patch_tokenizers", "batch_by_tokens"}  # which use the collators
    derived = {"quadrat.batching.samplers", "quadrat.evaluation.containers"}
    assert {HOMES[name] for name in others} == derived, "they derive from those of transformers"


def test_the_advice_to_group_rows_names_a_setting_that_there_is():
    setting = grouping().removeprefix("TrainingArguments(").partition("=")[0]
    assert setting in inspect.signature(transformers.TrainingArguments).parameters


def test_the_package_says_which_versions_work():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert 'transformers = ["transformers>=4.57,<6"' in text, "as the error for older ones says"
