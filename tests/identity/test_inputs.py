"""Features that come as columns give what the reference makes of the same features in lists."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from quadrat.rows import rows_of
from support import samples
from support.columns import FORMS, columns, features_of
from support.compare import assert_same_batch, generator_states, outcome
from support.strategies import make_tokenizer

OPTIONS = st.fixed_dictionaries(
    {
        "padding": st.sampled_from([True] * 4 + ["max_length", False]),
        "pad_to_multiple_of": st.sampled_from([None, None, 4]),
        "return_tensors": st.sampled_from(["pt", "np"]),
    }
)
FRAMEWORKS = st.sampled_from(["pt", "np"])
SIDES = st.sampled_from(["right", "left"])


def seed_all():
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)


def assert_as_lists(reference, collator, lists, given_as):
    """The same outcome and the same generators, from features in lists and as they were given, twice."""
    for _ in range(2):
        seed_all()
        expected_kind, expected = outcome(reference, features_of(lists))
        after = generator_states()
        seed_all()
        kind, got = outcome(collator, given_as)
        assert kind == expected_kind, f"expected {expected!r}, got {got!r}"
        assert generator_states() == after
        if kind == "raised":
            assert type(got) is type(expected), f"expected {expected!r}, got {got!r}"
        else:
            assert_same_batch(expected, got)


@pytest.mark.parametrize("form", FORMS)
@given(st.data(), columns(), OPTIONS, SIDES)
def test_padding(form, data, lists, options, side):
    tokenizer = make_tokenizer(padding_side=side)
    reference = transformers.DataCollatorWithPadding(tokenizer, max_length=12, **options)
    collator = quadrat.DataCollatorWithPadding(tokenizer, max_length=12, **options)
    assert_as_lists(reference, collator, lists, FORMS[form](data.draw, lists))


@pytest.mark.parametrize("form", ["dict", "sliced", "numpy", "ragged"])
@given(st.data(), columns(labels="labels"), OPTIONS, SIDES)
def test_token_classification(form, data, lists, options, side):
    tokenizer = make_tokenizer(padding_side=side)
    reference = transformers.DataCollatorForTokenClassification(tokenizer, max_length=12, **options)
    collator = quadrat.DataCollatorForTokenClassification(tokenizer, max_length=12, **options)
    assert_as_lists(reference, collator, lists, FORMS[form](data.draw, lists))


@pytest.mark.parametrize("form", ["dict", "chunked", "polars", "nested"])
@given(st.data(), columns(labels="labels"), OPTIONS, SIDES)
def test_seq2seq(form, data, lists, options, side):
    tokenizer = make_tokenizer(padding_side=side)
    reference = transformers.DataCollatorForSeq2Seq(tokenizer, max_length=12, **options)
    collator = quadrat.DataCollatorForSeq2Seq(tokenizer, max_length=12, **options)
    assert_as_lists(reference, collator, lists, FORMS[form](data.draw, lists))


@pytest.mark.parametrize("form", ["dict", "table", "sliced", "ragged"])
@given(st.data(), columns(), st.fixed_dictionaries({"mlm": st.booleans(), "return_tensors": FRAMEWORKS}), SIDES)
def test_language_modeling(form, data, lists, options, side):
    tokenizer = make_tokenizer(padding_side=side)
    tokenizer.mask_token = "w3"
    reference = transformers.DataCollatorForLanguageModeling(tokenizer, **options)
    collator = quadrat.DataCollatorForLanguageModeling(tokenizer, **options)
    assert_as_lists(reference, collator, lists, FORMS[form](data.draw, lists))


@pytest.mark.parametrize("form", ["dict", "record batch", "dict of arrow", "numpy"])
@given(st.data(), columns(equal=True), FRAMEWORKS)
def test_default(form, data, lists, framework):
    assert_as_lists(
        transformers.DefaultDataCollator(framework),
        quadrat.DefaultDataCollator(framework),
        lists,
        FORMS[form](data.draw, lists),
    )


@pytest.mark.parametrize("form", ["dict", "chunked", "ragged", "nested"])
@given(st.data(), columns(odd=False), FRAMEWORKS)
def test_flattening(form, data, lists, framework):
    options = {"return_tensors": framework, "return_seq_idx": True, "return_flash_attn_kwargs": True}
    lists = {"input_ids": lists["input_ids"]}
    assert_as_lists(
        transformers.DataCollatorWithFlattening(**options),
        quadrat.DataCollatorWithFlattening(**options),
        lists,
        FORMS[form](data.draw, lists),
    )


# The reference has no NumPy batches of multiple choice.
BATCHES = [
    (name, one) for name in samples.CLASSES for one in ("pt", "np") if one == "pt" or samples.source_of(name) != "pt"
]


@pytest.mark.filterwarnings("ignore:DataCollatorForWholeWordMask is only suitable")  # the sample's tokenizer is another
@pytest.mark.parametrize("form", ["dict", "BatchEncoding", "table", "polars", "dict of arrow"])
@pytest.mark.parametrize(("name", "framework"), BATCHES)
def test_every_collator(name, framework, form):
    source = transformers if name in samples.TWINS else quadrat
    features = samples.batch(name)
    lists = {key: [feature[key] for feature in features] for key in features[0]}
    made = pa.table(lists) if form == "table" else None
    made = {key: pa.array(values) for key, values in lists.items()} if form == "dict of arrow" else made
    made = FORMS[form](None, lists) if made is None else made
    collators = [samples.make(module, name, return_tensors=framework) for module in (source, quadrat)]
    assert_as_lists(*collators, lists, made)


@pytest.mark.filterwarnings("ignore:DataCollatorForWholeWordMask is only suitable")
@pytest.mark.parametrize("make", [quadrat.Ragged.from_rows, FORMS["nested"]])
@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize(
    "name",
    [
        "DataCollatorForLanguageModeling",
        "DataCollatorForPermutationLanguageModeling",
        "DataCollatorForWholeWordMask",
    ],
)
def test_bare_rows(name, framework, make):
    """A Ragged, or a nested tensor, is a list of bare rows to the collators that take these."""
    source = transformers if name in samples.TWINS else quadrat
    rows = [list(range(7, 7 + n)) for n in (6, 6, 6)]
    given_as = make(rows) if make is not FORMS["nested"] else make(None, {"rows": rows})["rows"]
    reference, collator = (samples.make(module, name, return_tensors=framework) for module in (source, quadrat))
    seed_all()
    expected = reference(rows)
    seed_all()
    assert_same_batch(expected, collator(given_as))


def test_a_ragged_is_input_ids_to_the_others():
    collator = samples.make(quadrat, "DataCollatorWithPadding")
    rows = [[5, 6, 7], [8]]
    assert_same_batch(collator({"input_ids": rows}), collator(quadrat.Ragged.from_rows(rows)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_that_no_kernel_knows(dtype):
    scores = quadrat.Ragged(torch.tensor([0.5, 2, 0.25, 4], dtype=dtype), torch.tensor([0, 2, 4]))
    collator = samples.make(quadrat, "DataCollatorWithPadding")
    given_as = {"input_ids": [[5, 6], [7, 8]], "scores": scores}
    assert_same_batch(collator({**given_as, "scores": scores.to_lists()}), collator(given_as))


def test_one_example_stays_one_example():
    """The reference pads a mapping of one example to tensors without a batch dimension."""
    tokenizer = samples.tokenizer()
    example = {"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1]}
    expected = transformers.DataCollatorWithPadding(tokenizer, pad_to_multiple_of=4)(example)
    assert_same_batch(expected, quadrat.DataCollatorWithPadding(tokenizer, pad_to_multiple_of=4)(example))
    assert expected["input_ids"].ndim == 1


def test_columns_of_different_lengths():
    uneven = {"input_ids": [[5, 6], [7]], "labels": [[1, 2]]}
    with pytest.raises(ValueError, match="column 'labels' has 1 rows where 'input_ids' has 2"):
        quadrat.DataCollatorForTokenClassification(samples.tokenizer())(uneven)
    with pytest.raises(AssertionError):  # the reference's own error: it takes mappings here
        transformers.DataCollatorWithPadding(samples.tokenizer())(uneven)
    with pytest.raises(AssertionError):
        quadrat.DataCollatorWithPadding(samples.tokenizer())(uneven)


@pytest.mark.parametrize("row", [[5, None, 7], None])
def test_nulls_are_named(row):
    table = pa.table({"input_ids": pa.array([[5, 6], row], pa.list_(pa.int32()))})
    with pytest.raises((TypeError, ValueError), match=r"column 'input_ids', row 1"):
        quadrat.DataCollatorWithPadding(samples.tokenizer())(table)


def test_a_column_of_strings_is_named():
    table = pa.table({"input_ids": [[5, 6], [7]], "text": ["a", "b"]})
    with pytest.raises(ValueError, match="column 'text'"):
        quadrat.DataCollatorWithPadding(samples.tokenizer())(table)


def test_types_without_a_form_here_come_from_the_library():
    """Dates are no numbers: the value is pyarrow's, and the error the reference's."""
    dates = pa.array([1, 2], pa.timestamp("s"))
    table = pa.table({"input_ids": [[5, 6], [7]], "day": dates})
    assert rows_of(table)[1] == {"input_ids": [7], "day": dates[1].as_py()}
    with pytest.raises((TypeError, ValueError), match="day"):
        quadrat.DataCollatorWithPadding(samples.tokenizer())(table)


def test_rows_are_a_sequence_of_dicts():
    columns_ = {"input_ids": [[5, 6], [7], []], "label": [0, 1, 2]}
    rows = rows_of(pa.table(columns_))
    assert list(rows) == features_of(columns_)
    assert rows[-1] == {"input_ids": [], "label": 2}
    assert list(rows[1:]) == features_of(columns_)[1:]
    assert len(rows[2:1]) == 0
    assert list(rows[::-2]) == features_of(columns_)[::-2]
    with pytest.raises(IndexError):
        rows[3]
    assert "3 rows" in repr(rows_of(pa.table(columns_)))


def test_two_columns_of_one_name():
    table = pa.Table.from_arrays([pa.array([[1]]), pa.array([[2]])], names=["input_ids", "input_ids"])
    with pytest.raises(ValueError, match="two columns 'input_ids'"):
        quadrat.DataCollatorWithPadding(samples.tokenizer())(table)


def test_features_are_left_alone():
    features = {"input_ids": [[5, 6], [7]], "label": [0, 1]}
    quadrat.DataCollatorWithPadding(samples.tokenizer())(features)
    assert features == {"input_ids": [[5, 6], [7]], "label": [0, 1]}
