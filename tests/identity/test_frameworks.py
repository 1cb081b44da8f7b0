"""return_tensors "tf" and "jax", with stand-ins for the two; with JAX itself where it is installed."""

import importlib.util
import sys
from types import ModuleType

import numpy as np
import pytest
import transformers
from transformers.data import data_collator

import quadrat
from support.compare import assert_same_batch, frozen, generator_states, outcome
from support.isolated import python
from support.samples import CLASSES, batch, make, source_of

HAS_TENSORFLOW = hasattr(data_collator, "tf_default_data_collator")
PACKAGES = {"tf": "tensorflow", "jax": "jax"}


def reference_has_tf(name):
    return HAS_TENSORFLOW and name != "DataCollatorWithFlattening"


class Tensor(np.ndarray):
    """What the stand-ins make of an array."""


def as_tensor(value, dtype=None):
    return np.asarray(value, dtype).view(Tensor)


@pytest.fixture
def _stand_ins(monkeypatch):
    tensorflow = ModuleType("tensorflow")
    vars(tensorflow).update(convert_to_tensor=as_tensor, Tensor=Tensor, int64=np.int64, float32=np.float32)
    vars(tensorflow).update(stack=lambda rows: as_tensor(np.stack(rows)), constant=as_tensor)
    jax, jax_numpy = ModuleType("jax"), ModuleType("jax.numpy")
    jax.numpy, jax_numpy.asarray = jax_numpy, as_tensor
    for module in (tensorflow, jax, jax_numpy):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def calls(module, name, framework):
    """The ways to ask a collator for a framework: (a new collator, what it is called with beside the features)."""
    yield make(module, name, return_tensors=framework), ()
    if name != "DataCollatorWithPadding":
        yield make(module, name), (framework,)


def outcomes(collator, arguments, name):
    """Three batches in a row, with the states of the generators after each."""
    transformers.set_seed(0)
    found = []
    for _ in range(3):
        rows = batch(name)
        before = frozen(rows)
        found.append((outcome(lambda rows: collator(rows, *arguments), rows), generator_states()))
        assert type(collator) is getattr(transformers, name, None) or frozen(rows) == before, "features were changed"
    return found


def assert_alike(first, second, assert_same):
    """Two of `outcomes`; `assert_same` compares the batches."""
    for ((kind, expected), states), ((our_kind, got), our_states) in zip(first, second, strict=True):
        assert our_kind == kind, (expected, got)
        assert our_states == states
        assert type(got) is type(expected)
        if kind == "returned":
            assert_same(expected, got)
        else:
            assert str(expected) in str(got)


def assert_converted(expected, got):
    for name, value in got.items():
        assert isinstance(value, Tensor) == isinstance(expected[name], np.ndarray), name
    plain = {name: np.asarray(value) if isinstance(value, Tensor) else value for name, value in got.items()}
    assert_same_batch(dict(expected.items()), plain)


@pytest.mark.usefixtures("_stand_ins")
@pytest.mark.parametrize(
    ("name", "framework"),
    [(name, each) for name in CLASSES for each in PACKAGES if each == "jax" or not reference_has_tf(name)],
)
def test_the_numpy_batch_converted(name, framework):
    source = source_of(name)
    for (one, arguments), (two, others) in zip(
        calls(quadrat, name, framework), calls(quadrat, name, source), strict=True
    ):
        expected = outcomes(two, others, name)
        if source == "pt":
            for (_, made), _ in expected:
                made.update({key: value.numpy() for key, value in made.items()})
        assert_alike(expected, outcomes(one, arguments, name), assert_converted)
        assert one.return_tensors == (framework if not arguments else two.return_tensors)


@pytest.mark.usefixtures("_stand_ins")
@pytest.mark.parametrize("framework", sorted(PACKAGES))
def test_counter_based_masks_are_the_same_everywhere(framework):
    """Also where the reference has a way of its own, which draws from TensorFlow's generator."""
    name = "DataCollatorForLanguageModeling"
    expected = make(quadrat, name, rng="philox")(batch(name), "np")
    for collator, arguments in (
        (make(quadrat, name, rng="philox", return_tensors=framework), ()),
        (make(quadrat, name, rng="philox"), (framework,)),
    ):
        got = collator(batch(name), *arguments)
        assert all(isinstance(value, Tensor) for value in got.values())
        assert_same_batch(expected, type(expected)({key: np.asarray(value) for key, value in got.items()}))


def assert_same_values(expected, got):
    assert {key: frozen(value) for key, value in got.items()} == {key: frozen(expected[key]) for key in expected}


@pytest.mark.usefixtures("_stand_ins")
@pytest.mark.skipif(not HAS_TENSORFLOW, reason="transformers 5.x knows nothing of TensorFlow")
@pytest.mark.parametrize("name", [name for name in CLASSES if reference_has_tf(name)] or CLASSES[:1])
def test_the_reference_where_it_has_tensorflow(name):
    for (one, arguments), (two, others) in zip(
        calls(quadrat, name, "tf"), calls(transformers, name, "tf"), strict=True
    ):
        assert_alike(outcomes(two, others, name), outcomes(one, arguments, name), assert_same_values)


@pytest.mark.usefixtures("_stand_ins")
@pytest.mark.parametrize("framework", PACKAGES)
def test_function(framework):
    rows = batch("DefaultDataCollator")
    got = quadrat.default_data_collator(rows, framework)
    assert_same_batch(quadrat.default_data_collator(rows, "np"), {name: np.asarray(got[name]) for name in got})
    assert {type(value) for value in got.values()} == {Tensor}


@pytest.mark.parametrize("framework", PACKAGES)
@pytest.mark.parametrize("name", [*CLASSES, "default_data_collator"])
def test_not_installed(name, framework, monkeypatch):
    for module in (PACKAGES[framework], f"{PACKAGES[framework]}.numpy"):
        monkeypatch.setitem(sys.modules, module, None)
    package = PACKAGES[framework]
    said = rf"return_tensors='{framework}' needs {package}: pip install {package}"
    states = generator_states()
    of_function = [(quadrat.default_data_collator, (framework,))]
    for collator, arguments in calls(quadrat, name, framework) if name in CLASSES else of_function:
        before = dict(vars(collator))
        for rows in (batch(name) if name in CLASSES else [{"a": 1}], [{"input_ids": "wrong"}], []):
            with pytest.raises(ModuleNotFoundError, match=said) as caught:
                collator(rows, *arguments)
            assert caught.value.name == PACKAGES[framework]
        assert vars(collator) == before
    assert generator_states() == states


@pytest.mark.parametrize("framework", PACKAGES)
def test_an_installation_that_lacks_something_says_so_itself(framework, monkeypatch, tmp_path):
    package = tmp_path / PACKAGES[framework]
    package.mkdir()
    (package / "__init__.py").write_text("import something_that_it_needs")
    monkeypatch.syspath_prepend(tmp_path)
    for module in [each for each in sys.modules if each.partition(".")[0] == PACKAGES[framework]]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ModuleNotFoundError, match="No module named 'something_that_it_needs'"):
        quadrat.default_data_collator([{"a": 1}], framework)


@pytest.mark.usefixtures("_stand_ins")
def test_padding_of_extra_columns():
    rows = [{"input_ids": [5, 6], "words": [1, 2]}, {"input_ids": [7], "words": [3]}]
    for framework in PACKAGES:
        collator = make(quadrat, "DataCollatorWithPadding", return_tensors=framework, pad_values={"words": -1})
        got = collator(rows)
        assert "_quadrat_np" in vars(collator), "the batch was remembered"
        assert got["words"].tolist() == [[1, 2, -1, -1], [3, -1, -1, -1]]
        assert type(got["words"]) is Tensor


@pytest.mark.usefixtures("_stand_ins")
def test_other_threads_see_no_change():
    seen = []

    class Looks(quadrat.DataCollatorForTokenClassification):
        def numpy_call(self, features):
            seen.append((self.return_tensors, collator.return_tensors))
            self.count = getattr(self, "count", 0) + 1
            return super().numpy_call(features)

    collator = Looks(make(quadrat, "DataCollatorForTokenClassification").tokenizer, return_tensors="jax")
    for _ in range(2):
        collator(batch("DataCollatorForTokenClassification"))
    assert seen == [("np", "jax")] * 2
    assert collator.count == 2, "what a call leaves in the collator stays"


PROGRAM = """
import jax, numpy as np, quadrat, transformers
from support.samples import CLASSES, batch, make, source_of

def check(name, wide):
    source = source_of(name)
    one, two = make(quadrat, name, return_tensors="jax"), make(quadrat, name, return_tensors=source)
    for _ in range(2):
        transformers.set_seed(0)
        got = one(batch(name))
        transformers.set_seed(0)
        expected = two(batch(name))
        assert type(got) is type(expected) and list(got) == list(expected), name
        for key, value in expected.items():
            value = value.numpy() if source == "pt" else value
            if not isinstance(value, np.ndarray):
                assert got[key] == value
                continue
            assert isinstance(got[key], jax.Array), (name, key)
            narrow = {"int64": "int32", "float64": "float32"}.get(value.dtype.name, value.dtype.name)
            assert got[key].dtype.name == (value.dtype.name if wide else narrow), (name, key)
            np.testing.assert_array_equal(np.asarray(got[key]), value)

for wide in (False, True):
    jax.config.update("jax_enable_x64", wide)
    for name in CLASSES:
        check(name, wide)
        print(name)
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed (the dev group has it)")
def test_jax_itself():
    # In a process of its own: JAX starts threads, and other tests fork.
    assert python("-c", PROGRAM).split() == CLASSES * 2
