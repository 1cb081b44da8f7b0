"""convert_to_tensors == BatchEncoding.convert_to_tensors of the installed transformers; tokenizers while patched."""

import copy
import pickle
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import BatchEncoding, ByT5Tokenizer, PreTrainedTokenizerBase
from transformers.utils import TensorType

import quadrat
from quadrat.installed import originals
from quadrat.planning import conversion
from support.compare import assert_same_outcome, both, default_dtype, frozen, outcome
from support.strategies import features, make_tokenizer
from support.trained import train_tokenizer

NUMBERS = st.sampled_from([0, 1, 7, -5, 2**30, 2**63 - 1, -(2**63), 0.5, 1e300, float("nan"), True, False])
ODD = st.sampled_from([None, "text", 2**63, 2**70, np.int64(3), np.float32(0.5), np.bool_(True), torch.tensor(2), 1j])


@st.composite
def nested(draw: Any, depth: int) -> Any:
    """Lists in lists, mostly of one length and of one kind of number."""
    if depth == 0:
        return draw(NUMBERS)
    kind = draw(st.sampled_from([st.integers(-9, 400), st.floats(width=32), st.booleans(), NUMBERS]))
    shape = draw(st.lists(st.integers(0, 3), min_size=depth, max_size=depth))

    def make(level: int) -> Any:
        if level == depth:
            return draw(ODD) if draw(st.integers(0, 60)) == 0 else draw(kind)
        ragged = draw(st.integers(0, 25)) == 0
        values = [make(level + 1) for _ in range(shape[level] + ragged)]
        return tuple(values) if draw(st.integers(0, 9)) == 0 else values

    return make(0)


def arrays() -> st.SearchStrategy[Any]:
    dtypes = st.sampled_from(
        ["int64", "int32", "uint8", "uint16", "uint64", "float16", "float32", "float64", "bool", ">i4"]
    )
    shapes = st.sampled_from([(), (0,), (3,), (2, 3), (0, 2), (2, 0)])
    return st.builds(lambda dtype, shape: np.ones(shape).astype(dtype), dtypes, shapes)


VALUES = (
    st.integers(0, 4).flatmap(nested)
    | arrays()
    | st.lists(arrays(), max_size=3)
    | arrays().map(lambda array: [array, array])
    | arrays().map(lambda array: (array, array))
    | st.sampled_from(
        [torch.tensor([[1, 2]]), [torch.tensor([1, 2])] * 2, [torch.tensor(1)], {"a": 1}, [], "text", None]
    )
)
NAMES = st.sampled_from(["input_ids", "attention_mask", "overflowing_tokens", "bbox", "length", 7])
FRAMEWORKS = st.sampled_from(["pt"] * 4 + ["np"] * 4 + [None, "wrong", 3, *TensorType])


def assert_same(
    data: Any, framework: Any, *prepends: Any, convert: Any = quadrat.tokenizers.convert_to_tensors
) -> None:
    theirs, ours = BatchEncoding(copy.deepcopy(data), n_sequences=1), BatchEncoding(copy.deepcopy(data), n_sequences=1)
    expected = outcome(lambda encoding: originals.CONVERT_TO_TENSORS(encoding, framework, *prepends), theirs)
    got = outcome(lambda encoding: convert(encoding, framework, *prepends), ours)
    assert got[0] == expected[0], (expected, got)
    if expected[0] == "raised":
        assert type(got[1]) is type(expected[1])
        assert str(got[1]) == str(expected[1])
        assert type(got[1].__cause__) is type(expected[1].__cause__)
    else:
        assert got[1] is ours
    assert_same_outcome(("returned", theirs.data), ("returned", ours.data))  # as far as each got
    assert ours.n_sequences == 1


# Values before the one that fails are converted.
OVERFLOWING = {"input_ids": [[1, 2]], "overflowing_tokens": [[1], []], "attention_mask": [[1, 1]]}


@example(OVERFLOWING, "pt", False)
@example(OVERFLOWING, "np", False)
@given(st.dictionaries(NAMES, VALUES, max_size=4), FRAMEWORKS, st.booleans())
def test_every_value(data, framework, prepends):
    assert_same(data, framework, prepends)


@pytest.mark.parametrize("framework", ["np", "pt"])
@pytest.mark.parametrize("large", [2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**70, -(2**70), 2**1100])
def test_large_ints_among_floats(large, framework):
    for value in ([0.5, large], [[0.5, 1.5], [large, 2.5]], [[[2.5, large]], [[0.5, 1.0]]]):
        assert_same({"input_ids": value}, framework)
        rows = [{"input_ids": [1], "column": number} for number in value]
        for name, arguments in {"DataCollatorWithPadding": [make_tokenizer()], "DefaultDataCollator": []}.items():
            reference, collator = both(name, *arguments, return_tensors=framework)
            assert_same_outcome(outcome(reference, rows), outcome(collator, rows))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_default_dtypes(dtype):
    with default_dtype(dtype):
        assert_same({"input_ids": [[1, 2]], "score": [[0.5, 1e300]], "one": [0.5]}, "pt")


def test_a_default_device():
    with torch.device("meta"):
        got = quadrat.tokenizers.convert_to_tensors(BatchEncoding({"input_ids": [[1, 2]]}), "pt")
    assert got["input_ids"].is_meta


@pytest.mark.parametrize("framework", ["pt", "np"])
def test_lists_are_not_walked_over(framework, monkeypatch):
    monkeypatch.setattr(conversion.originals, "CONVERT_TO_TENSORS", None)
    data = {"input_ids": [[1, 2]] * 3, "bbox": [[[1, 2, 3, 4]] * 2] * 3, "length": [2, 2, 2], "score": [[0.5]] * 3}
    encoding = quadrat.tokenizers.convert_to_tensors(BatchEncoding(data), framework)
    assert [tuple(value.shape) for value in encoding.values()] == [(3, 2), (3, 2, 4), (3,), (3, 1)]


def test_subclasses_and_other_data_are_left_to_the_reference():
    class Own(BatchEncoding):
        def __setitem__(self, name: Any, value: Any) -> None:
            self.data[name] = value if isinstance(value, list) else ("set", value)

    encoding = quadrat.tokenizers.convert_to_tensors(Own({"input_ids": [[1]]}), "np")
    assert encoding["input_ids"][0] == "set"
    other = BatchEncoding()
    other.data = UserDict({"input_ids": [[1]]})
    assert quadrat.tokenizers.convert_to_tensors(other, "np")["input_ids"].tolist() == [[1]]


TEXTS = ["one two three", "four", "", "five six seven eight nine ten eleven"]


TOKENIZERS = {"fast": lambda: train_tokenizer(TEXTS * 3), "python": ByT5Tokenizer}


CALLS = [
    {"padding": True, "return_tensors": "pt"},
    {"padding": True, "return_tensors": "np"},
    {"padding": "max_length", "max_length": 24, "truncation": True, "return_tensors": TensorType.PYTORCH},
    {"return_tensors": "pt"},
    {"padding": True, "return_tensors": "pt", "return_offsets_mapping": True, "return_length": True},
    {
        "padding": True,
        "return_tensors": "np",
        "truncation": True,
        "max_length": 4,
        "return_overflowing_tokens": True,
        "return_special_tokens_mask": True,
    },
    {},
]


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("options", CALLS)
def test_tokenizers_while_patched(kind, options):
    """Those in Python pad what they encode by their own method `pad`."""
    fast = kind == "fast"
    if options.get("return_offsets_mapping") and not fast:
        pytest.skip("only fast tokenizers know offsets")
    tokenizer = TOKENIZERS[kind]()
    for texts in (TEXTS, TEXTS[0], TEXTS[:1], *[[("a", "b"), ("c d", "e f g")]] * fast):
        expected = outcome(lambda inputs: tokenizer(inputs, **options), texts)
        with quadrat.tokenizers.patch_tokenizers():
            got = outcome(lambda inputs: tokenizer(inputs, **options), texts)
        assert_same_outcome(expected, got)
        if expected[0] == "raised":
            assert str(got[1]) == str(expected[1])
        elif fast:
            assert got[1].n_sequences == expected[1].n_sequences
            assert [encoding.ids for encoding in got[1].encodings] == [
                encoding.ids for encoding in expected[1].encodings
            ]
            assert got[1].word_ids(0) == expected[1].word_ids(0)


def test_methods_are_pickled_by_their_names():
    tokenizer = make_tokenizer()
    plain = pickle.dumps(tokenizer), pickle.dumps(tokenizer.pad)
    with quadrat.tokenizers.patch_tokenizers():
        assert (pickle.dumps(tokenizer), pickle.dumps(tokenizer.pad)) == plain
        assert pickle.loads(plain[1]).__func__ is PreTrainedTokenizerBase.pad


@given(features(labels="labels"), st.sampled_from(["pt", "np"]))
def test_collators_while_patched(rows, framework):
    """The reference's collators call the patched methods, and quadrat's still know the tokenizer's own padding."""
    tokenizer = make_tokenizer()
    theirs, ours = both("DataCollatorWithPadding", tokenizer, return_tensors=framework)
    expected = outcome(theirs, copy.deepcopy(rows))
    for collator in (theirs, ours):
        with quadrat.tokenizers.patch_tokenizers():
            assert_same_outcome(expected, outcome(collator, copy.deepcopy(rows)))
    assert_same_outcome(expected, outcome(ours, copy.deepcopy(rows)))


def test_known_batches_stay_known_while_patched(monkeypatch):
    tokenizer, rows = make_tokenizer(), [{"input_ids": [3, 4]}, {"input_ids": [5]}]
    with quadrat.tokenizers.patch_tokenizers():
        expected = tokenizer.pad(rows, return_tensors="pt")
        with monkeypatch.context() as without:  # and back before the patch is undone
            without.setattr(originals, "PAD", None)
            got = tokenizer.pad(rows, return_tensors="pt")
    assert frozen(got) == frozen(expected)
