"""Batches after the first: widths that the tokenizer is asked for, extra columns, bare rows, objects, other dtypes."""

import copy
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import EsmTokenizer, PerceiverTokenizer

import quadrat
from support import samples
from support.compare import assert_identical, assert_same_outcome
from support.forms import observed
from support.strategies import features, make_tokenizer

AMINO_ACIDS = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Tokenizers without a Rust backend, new ones at each call."""
    vocabulary = tmp_path_factory.mktemp("esm") / "vocab.txt"
    Path(vocabulary).write_text("\n".join(AMINO_ACIDS))
    return {"esm": lambda: EsmTokenizer(str(vocabulary)), "perceiver": PerceiverTokenizer}


def knows(collator: Any, batch: Any) -> bool:
    """Whether a batch is made in the one compiled call, without a plan."""
    before = quadrat.stats().remembered
    collator(copy.deepcopy(batch))
    return quadrat.stats().remembered == before + 1


def rows(*lengths: int) -> list[dict[str, Any]]:
    return [{"input_ids": list(range(5, 5 + n)), "attention_mask": [1] * n} for n in lengths]


OPTIONS: list[dict[str, Any]] = [
    {"padding": "max_length", "max_length": 9},
    {"padding": "max_length"},
    {"padding": "max_length", "max_length": 0},
    {"padding": "max_length", "max_length": 6, "pad_to_multiple_of": 4},
    {"padding": True, "max_length": 5},
    {"padding": False},
    {"padding": False, "max_length": 5, "pad_to_multiple_of": 4},
    {"padding": "do_not_pad"},
    {"padding": "longest", "max_length": 3},
]
CHANGES: dict[str, Any] = {
    "nothing": lambda collator: None,
    "limit of the model": lambda collator: setattr(collator.tokenizer, "model_max_length", 7),
    "no limit": lambda collator: setattr(collator.tokenizer, "model_max_length", int(1e30)),
    "length": lambda collator: setattr(collator, "max_length", 8),
    "padding": lambda collator: setattr(collator, "padding", True),
}


@pytest.mark.parametrize("name", ["DataCollatorWithPadding", "DataCollatorForTokenClassification"])
@settings(max_examples=settings().max_examples // 2)
@given(
    st.sampled_from(OPTIONS),
    st.lists(st.tuples(features(labels="labels"), st.sampled_from(sorted(CHANGES))), min_size=2, max_size=4),
)
def test_the_tokenizer_is_asked_for_the_width(name, options, steps):
    reference, collator = (getattr(module, name)(make_tokenizer(), **options) for module in (transformers, quadrat))
    for one in (reference, collator):
        one.tokenizer.model_max_length = 12
    for batch, change in steps:
        for again in range(2):
            (expected, (theirs, _)), (got, (ours, _)) = (
                observed(one, [dict(feature) for feature in batch]) for one in (reference, collator)
            )
            assert_same_outcome(expected, got)
            asked = [[text for _, text in said if "max_length" in text] for said in (theirs, ours)]  # torch has its own
            assert asked[0] == asked[1], again
        for one in (reference, collator):
            CHANGES[change](one)


@pytest.mark.parametrize("name", samples.CLASSES)
def test_another_collator_with_the_same_options_knows_the_batches(name):
    collator = samples.make(quadrat, name, **{option: None for option in samples.SAMPLES[name][0] if option == "seed"})
    equal, other, batch = copy.copy(collator), copy.copy(collator), samples.batch(name)
    other.another = None
    assert not knows(collator, batch)
    assert knows(equal, batch)
    assert not knows(other, batch)


def test_extra_columns_are_known_until_their_values_change():
    values = {"scores": 0.5}
    collator = quadrat.DataCollatorWithPadding(make_tokenizer(), pad_values=values)
    batch = [dict(row, scores=[0.25] * len(row["input_ids"])) for row in rows(3, 1)]
    assert collator(batch)["scores"][1].tolist() == [0.25, 0.5, 0.5]
    assert knows(collator, batch)
    values["scores"] = -1.0
    assert not knows(collator, batch)
    assert collator(batch)["scores"][1].tolist() == [0.25, -1.0, -1.0]
    values["more"] = 0
    with pytest.raises(KeyError, match="'more' is missing in row 0"):
        collator(batch)


@pytest.mark.parametrize("kind", ["esm", "perceiver"])
@pytest.mark.parametrize("name", ["DataCollatorWithPadding", "DataCollatorForLanguageModeling"])
@pytest.mark.parametrize("framework", ["pt", "np"])
def test_tokenizers_without_a_backend(slow, kind, name, framework):
    tokenizers = [slow[kind](), slow[kind]()]
    reference, collator = (
        getattr(module, name)(tokenizer, return_tensors=framework)
        for module, tokenizer in zip((transformers, quadrat), tokenizers, strict=True)
    )
    for _ in range(2):
        assert_identical(reference, collator, rows(20, 11, 27))
    assert knows(collator, rows(9, 3))
    for tokenizer in tokenizers:
        tokenizer.add_special_tokens({"pad_token": "[NEW]", "mask_token": "[OTHER]"})
    assert not knows(collator, rows(9, 3))
    assert_identical(reference, collator, rows(20, 11, 27))
