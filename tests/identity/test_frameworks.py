"""return_tensors of other frameworks is left to transformers (TensorFlow is a stand-in); other defaults of torch."""

import copy
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
import transformers

import quadrat
from support import samples
from support.compare import assert_identical, assert_same_outcome, default_dtype, frozen, generator_states, outcome
from support.samples import CLASSES, batch, make


class Tensor(np.ndarray):
    """What the stand-in makes of an array."""


def as_tensor(value, dtype=None):
    return np.asarray(value, dtype).view(Tensor)


@pytest.fixture
def _tensorflow(monkeypatch):
    module = ModuleType("tensorflow")
    vars(module).update(convert_to_tensor=as_tensor, Tensor=Tensor, int64=np.int64, float32=np.float32)
    vars(module).update(stack=lambda rows: as_tensor(np.stack(rows)), constant=as_tensor)
    monkeypatch.setitem(sys.modules, "tensorflow", module)


def outcomes(module, name, framework, *, by_option):
    """Three batches in a row, with the states of the generators after each."""
    arguments = () if by_option else (framework,)
    collator = make(module, name, **({"return_tensors": framework} if by_option else {}))
    transformers.set_seed(0)
    batches = [batch(name) for _ in range(3)]
    return [(outcome(lambda rows: collator(rows, *arguments), rows), generator_states()) for rows in batches], collator


@pytest.mark.usefixtures("_tensorflow")
@pytest.mark.parametrize("framework", ["tf", "jax", "mlx", "unknown"])
@pytest.mark.parametrize(("name", "by_option"), [(name, by_option) for name in CLASSES for by_option in (True, False)])
def test_as_in_transformers(name, framework, by_option):
    if name == "DataCollatorWithPadding" and not by_option:
        return  # takes no such argument
    expected, _ = outcomes(transformers, name, framework, by_option=by_option)
    quadrat.stats(reset=True)
    got, _ = outcomes(quadrat, name, framework, by_option=by_option)
    batches = 0
    for (theirs, state), (ours, own_state) in zip(expected, got, strict=True):
        assert own_state == state
        if theirs[0] == "returned":
            batches += 1
            assert frozen(ours[1]) == frozen(theirs[1])
        else:
            assert ours[0] == "raised"
            assert type(ours[1]) is type(theirs[1])
            assert str(ours[1]).startswith(str(theirs[1]))
    stats = quadrat.stats()
    assert (stats.compiled, stats.fell_back) == (0, batches)


@pytest.mark.parametrize("framework", ["tf", "jax"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("DataCollatorForLanguageModeling", {"rng": "philox"}),
        ("DataCollatorForLanguageModeling", {"padding_free": True}),
        ("DataCollatorForLanguageModeling", {"mlm": False, "mask_padding": "length"}),
        ("DataCollatorForTokenClassification", {"padding_free": True}),
        ("DataCollatorWithFlattening", {"align_to": 4}),
        ("DataCollatorWithPadding", {"pad_values": {"words": -1}}),
        ("DataCollatorWithPadding", {"join_columns": ("words",)}),
        ("DataCollatorForTokenClassification", {"dtypes": {"words": "float16"}}),
    ],
)
def test_options_of_quadrat_are_not_lost(name, options, framework):
    states = generator_states()
    with pytest.raises(ValueError, match=f"return_tensors='{framework}'.*leave these options out"):
        make(quadrat, name, return_tensors=framework, **options)(batch(name))
    assert generator_states() == states


# Longer than the draws that show a probability that is rounded in another way.
LONG = [{"input_ids": list(range(7, 7 + n))} for n in (300, 212, 300)]


def bfloat16_is_whole():
    """True if this torch makes all that transformers asks for in bfloat16; otherwise transformers raises."""
    try:
        torch.eye(2, dtype=torch.bfloat16)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("name", samples.CLASSES)
def test_other_defaults_of_torch(name):
    """A plan made for one default dtype, or device, is not used for another."""
    reference, collator = samples.pair(name)
    batch = LONG if name.endswith(("LanguageModeling", "WordMask")) else samples.batch(name)
    batch = [{**row, "score": 0.1} for row in batch] if name == "DataCollatorWithPadding" else batch
    dtypes = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float32]
    if not bfloat16_is_whole():
        dtypes.remove(torch.bfloat16)
    for dtype in dtypes:
        with default_dtype(dtype):
            assert_identical(reference, collator, batch)
    with torch.device("meta"):
        expected, got = outcome(reference, copy.deepcopy(batch)), outcome(collator, batch)
        assert_same_outcome(expected, got)
        if got[0] == "returned":
            assert "meta" in {value.device.type for value in got[1].values() if isinstance(value, torch.Tensor)}
    assert_identical(reference, collator, batch, calls=1)
