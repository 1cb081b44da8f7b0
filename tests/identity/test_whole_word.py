"""DataCollatorForWholeWordMask == that of transformers 4.57; for that of 5.x see test_whole_words.py."""

import functools
import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support.compare import assert_identical, assert_same_outcome, seeded
from support.strategies import WRAPPERS, make_word_piece_tokenizer

Reference: Any = getattr(transformers, "DataCollatorForWholeWordMask", None)
Compiled: Any = quadrat.DataCollatorForWholeWordMask
BOTH = (Reference, Compiled)
pytestmark = pytest.mark.skipif(
    not hasattr(Reference, "_shuffle"), reason="transformers 5 has no collator that finds words by the '##' of tokens"
)


class BertLike(transformers.BertTokenizerFast):
    """Of the class that is not warned of, without a vocabulary file."""

    def __init__(self, **options: Any) -> None:
        transformers.PreTrainedTokenizerFast.__init__(self, **options)


class KnowsItsSpecialTokens(transformers.PreTrainedTokenizerFast):
    """A tokenizer with its own idea of special tokens."""

    def get_special_tokens_mask(self, token_ids_0: Any, *args: Any, **kwargs: Any) -> list[int]:
        return [int(token_id % 4 == 1) for token_id in token_ids_0]


class NamesItsTokens(transformers.PreTrainedTokenizerFast):
    """A tokenizer with its own idea of tokens."""

    def _convert_id_to_token(self, index: int) -> str:
        return "##same" if index % 2 else "[SEP]" if index % 7 == 0 else "same"


def tokenizers() -> st.SearchStrategy[Any]:
    usual = [transformers.PreTrainedTokenizerFast] * 5 + [BertLike] * 5
    return st.builds(
        make_word_piece_tokenizer,
        padding_side=st.sampled_from(["right"] * 4 + ["left"] * 4 + ["middle"]),
        pad_token=st.sampled_from(["[PAD]"] * 5 + ["[EOS]"] * 2 + [None, "##added", "w10", "not there"]),
        cls=st.sampled_from([*usual, KnowsItsSpecialTokens, NamesItsTokens]),
    )


IDS = st.integers(0, 61) | st.integers(0, 61) | st.sampled_from([2, 3, 5, 9, 12, 15, 60])
ODD = {
    "unknown": 62, "far": 10**6, "negative": -1, "huge": 2**70, "float": 1.5, "bool": True, "None": None,
    "str": "w9", "nested": [9], "numpy": np.int64(9),
}  # fmt: skip


def as_form(row: list[Any], form: str) -> Any:
    if form in ("list", "tuple"):
        return row if form == "list" else tuple(row)
    library, dtype = form.split()
    if library == "backward":  # the same numbers, of which torch makes no tensor
        return np.array(row[::-1], dtype)[::-1]
    if library == "array":
        return np.array(row, dtype)
    return torch.tensor(row, dtype=getattr(torch, dtype))


@st.composite
def batches(draw: Any) -> Any:
    """Features with ids and perhaps `chinese_ref`, or bare rows, sometimes with something wrong."""
    longest = draw(st.sampled_from([0, 1, 5, 12, 40]))
    lengths = draw(st.lists(st.integers(0, longest) | st.just(longest), min_size=1, max_size=5))
    rows: list[Any] = [draw(st.lists(IDS, min_size=length, max_size=length)) for length in lengths]
    odd = draw(st.sampled_from([None] * 12 + sorted(ODD)))
    if odd is not None and rows[-1]:
        rows[-1][draw(st.integers(0, len(rows[-1]) - 1))] = ODD[odd]
    forms = ["list"] * 8 + ["array int64"] * 3 + ["tensor int64"] * 3
    if odd is None:
        others = ["tuple", "array int32", "array uint8", "tensor int32", "array float64", "backward int64"]
        form = draw(st.sampled_from(forms + others))
        mixed = draw(st.integers(0, 9)) == 0
        rows = [as_form(row, draw(st.sampled_from(forms)) if mixed else form) for row in rows]
    if draw(st.integers(0, 4)) == 0:
        return rows
    features: list[dict[str, Any]] = [{"input_ids": row} for row in rows]
    if draw(st.booleans()):
        form = draw(st.sampled_from([*forms, "tuple", "array int8", "array float64"]))
        for feature, length in zip(features, lengths, strict=True):
            if draw(st.integers(0, 3)):
                joined = draw(st.lists(st.integers(-1, length + 1), max_size=6))
                feature["chinese_ref"] = as_form(joined, form)
    if draw(st.booleans()):
        features = [{"labels": 3, **feature, "text": "left out"} for feature in features]
    if draw(st.integers(0, 15)) == 0:
        features[-1].pop("input_ids")
    wrapper = WRAPPERS[draw(st.sampled_from(["dict"] * 4 + sorted(WRAPPERS)))]
    return [wrapper(feature) for feature in features]


OPTIONS = st.fixed_dictionaries(
    {
        "mlm_probability": st.sampled_from([0.15] * 4 + [0, 0.5, 0.9, 1.0]),
        "seed": st.sampled_from([None] * 3 + [0, 1, 7]),
        "return_tensors": st.sampled_from(["pt", "np"]),
    },
    optional={
        "mlm": st.booleans(),
        "pad_to_multiple_of": st.sampled_from([None, 1, 4, 8, 0, True, "8"]),
        "replace": st.sampled_from([(0.8, 0.2), (0.9, 0.1), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.5, 0.25), (1, 0)]),
    },
)


def make(cls: Any, tokenizer: Any, options: dict[str, Any]) -> Any:
    options = dict(options)
    if "replace" in options:
        options["mask_replace_prob"], options["random_replace_prob"] = options.pop("replace")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cls(tokenizer, **options)


@given(tokenizers(), batches(), OPTIONS, st.integers(0, 99))
def test_masks_alike(tokenizer, batch, options, seed):
    assert_identical(*(make(cls, tokenizer, options) for cls in BOTH), batch, seed=seed)


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("seed", [None, 3])
@given(data=st.data())
def test_usual_batches(framework, seed, data):
    tokenizer = make_word_piece_tokenizer(padding_side=data.draw(st.sampled_from(["right", "left"])), cls=BertLike)
    lengths = data.draw(st.lists(st.integers(1, 700), min_size=1, max_size=4))
    draw = random.Random(data.draw(st.integers(0, 10**6)))
    batch = [{"input_ids": [2, *(draw.randrange(62) for _ in range(length)), 3]} for length in lengths]
    if data.draw(st.booleans()):
        for row in batch:
            row["chinese_ref"] = draw.sample(range(len(row["input_ids"])), draw.randrange(len(row["input_ids"])))
    options = {
        "return_tensors": framework, "seed": seed, "mlm_probability": data.draw(st.floats(0, 1)),
        "pad_to_multiple_of": data.draw(st.sampled_from([None, 8])),
    }  # fmt: skip
    reference, collator = (make(cls, tokenizer, options) for cls in BOTH)
    assert_identical(reference, collator, batch)
    assert not getattr(collator, "_quadrat_fell_back", None)


CHANGES: dict[str, Any] = {
    "nothing": lambda collator: None,
    "side": lambda collator: setattr(collator.tokenizer, "padding_side", "left"),
    "new tokens": lambda collator: collator.tokenizer.add_tokens(["##new", "newer"]),
    "one token more": lambda collator: collator.tokenizer._tokenizer.add_tokens(["##more"]),
    "special tokens": lambda collator: collator.tokenizer.add_special_tokens({"bos_token": "w11"}),
    "pad token": lambda collator: setattr(collator.tokenizer, "pad_token", "w14"),
    "no pad token": lambda collator: setattr(collator.tokenizer, "pad_token", None),
    "mask token": lambda collator: setattr(collator.tokenizer, "mask_token", "[EOS]"),
    "no mask token": lambda collator: setattr(collator.tokenizer, "mask_token", None),
    "another class": lambda collator: setattr(collator.tokenizer, "__class__", NamesItsTokens),
    "own special tokens": lambda collator: setattr(
        collator.tokenizer, "get_special_tokens_mask", lambda row, **_: [int(token_id == 9) for token_id in row]
    ),
    "tokenizer": lambda collator: setattr(collator, "tokenizer", make_word_piece_tokenizer(padding_side="left")),
    "probability": lambda collator: setattr(collator, "mlm_probability", 0.6),
    "whole probability": lambda collator: setattr(collator, "mlm_probability", 1),
    "share too large": lambda collator: setattr(collator, "mlm_probability", 2.0),
    "no replacement": lambda collator: setattr(collator, "mask_replace_prob", 0.0),
    "wrong replacement": lambda collator: setattr(collator, "random_replace_prob", 0.7),
    "multiple": lambda collator: setattr(collator, "pad_to_multiple_of", 16),
    "numpy": lambda collator: setattr(collator, "return_tensors", "np"),
    "seed": lambda collator: setattr(collator, "seed", 5),
    "no seed": lambda collator: setattr(collator, "seed", None),
    "no generator": lambda collator: setattr(collator, "generator", None),
    "other generator": lambda collator: setattr(collator, "generator", np.random.default_rng(3)),
    "third generator": lambda collator: setattr(collator, "generator", torch.Generator().manual_seed(3)),
}
SMALL = [{"input_ids": [2, 8, 9, 11, 14, 15, 60, 3]}, {"input_ids": [2, 8, 9, 12, 3], "chinese_ref": [1, 4]}]
NEW = [{"input_ids": [8, 62, 63]}, *SMALL]  # known when tokens have been added


@given(
    st.lists(
        st.tuples(batches() | st.sampled_from([SMALL, NEW]), st.sampled_from(sorted(CHANGES))), min_size=2, max_size=5
    )
)
def test_changes_between_batches(steps):
    pair = [make(cls, make_word_piece_tokenizer(), {}) for cls in BOTH]
    for batch, change in steps:
        assert_identical(*pair, batch)
        for collator in pair:
            CHANGES[change](collator)
    for batch in (SMALL, NEW):
        assert_identical(*pair, batch)


OVERRIDES: dict[str, Any] = {
    "_whole_word_mask": lambda self, tokens, most=512: [int(i % 3 == 1) for i in range(len(tokens))],
    "_shuffle": lambda self, words: words[::-1],
    "torch_mask_tokens": lambda self, inputs, masked: (inputs * 2, masked),
    "numpy_mask_tokens": lambda self, inputs, masked: (inputs * 2, masked),
}


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("name", OVERRIDES)
@pytest.mark.parametrize("where", ["class", "instance"])
def test_overridden_methods(name, framework, where):
    pair = []
    for cls in BOTH:
        subclass = type("Own", (cls,), {name: OVERRIDES[name]} if where == "class" else {})
        pair.append(make(subclass, make_word_piece_tokenizer(), {"return_tensors": framework}))
        if where == "instance":
            setattr(pair[-1], name, OVERRIDES[name].__get__(pair[-1]))
    assert_identical(*pair, SMALL[:1])


@pytest.mark.parametrize("seed", [None, 4])
@pytest.mark.parametrize(("framework", "called"), [("pt", "np"), ("np", "pt")])
def test_called_for_the_other_framework(seed, framework, called):
    options = {"seed": seed, "return_tensors": framework}
    pair = [make(cls, make_word_piece_tokenizer(), options) for cls in BOTH]
    calls = [functools.partial(collator, return_tensors=called) for collator in pair]
    assert_identical(*calls, SMALL[:1])


@pytest.mark.parametrize("rows", [torch.tensor([[2, 8, 9, 3]]), np.array([[2, 8, 9, 3]]), [], {}, iter([]), None, "ab"])
def test_odd_features(rows):
    pair = [make(cls, make_word_piece_tokenizer(), {}) for cls in BOTH]
    assert_same_outcome(*(seeded(collator, rows)[0] for collator in pair))


def test_warns_of_other_tokenizers_and_draws_nothing_if_that_is_an_error():
    collator = make(Compiled, make_word_piece_tokenizer(), {})
    before = random.getstate(), torch.get_rng_state().tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="DataCollatorForWholeWordMask is only suitable for BertTokenizer"):
            collator(SMALL)
        assert (random.getstate(), torch.get_rng_state().tolist()) == before
        make(Compiled, make_word_piece_tokenizer(cls=BertLike), {})(SMALL)


def test_warns_for_each_row():
    messages = []
    for cls in BOTH:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            make(cls, make_word_piece_tokenizer(), {})(SMALL)
        messages.append([(warning.category, str(warning.message)) for warning in warned])
    assert len(messages[0]) == len(SMALL) > 1
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    "options", [{}, {"mlm": False, "mask_replace_prob": 0.3}, {"mlm": False, "mlm_probability": 5}]
)
def test_fields(options):
    tokenizer = make_word_piece_tokenizer()
    reference, collator = (make(cls, tokenizer, options) for cls in BOTH)
    assert vars(collator) == {**vars(reference), "deferred": False}
    assert (collator.mlm, collator.whole_word_mask) == (True, True)
