"""Features that come as columns give what the reference makes of the same features in lists."""

import re

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from quadrat.input.rows import rows_of
from quadrat.installed.behaviour import flattening_takes_arrays
from support import samples
from support.columns import FORMS, columns, features_of
from support.compare import assert_identical, assert_same_batch, both, outcome
from support.strategies import OTHER_ROWS, ROW_FORMS, WRAPPERS, make_tokenizer

OPTIONS = st.fixed_dictionaries(
    {
        "padding": st.sampled_from([True] * 4 + ["max_length", False]),
        "pad_to_multiple_of": st.sampled_from([None, None, 4]),
        "return_tensors": st.sampled_from(["pt", "np"]),
    }
)
FRAMEWORKS = st.sampled_from(["pt", "np"])
SIDES = st.sampled_from(["right", "left"])


MASKING = st.fixed_dictionaries({"mlm": st.booleans(), "return_tensors": FRAMEWORKS})
FLATTENING = st.fixed_dictionaries(
    {
        "return_tensors": FRAMEWORKS,
        "return_seq_idx": st.just(True),
        "return_flash_attn_kwargs": st.just(True),
    }
)
# (collator, forms, columns, options)
CASES = [
    ("WithPadding", FORMS, columns(), OPTIONS),
    ("ForTokenClassification", ["dict", "sliced", "numpy", "ragged"], columns(labels="labels"), OPTIONS),
    ("ForSeq2Seq", ["dict", "chunked", "polars", "nested"], columns(labels="labels"), OPTIONS),
    ("ForLanguageModeling", ["dict", "table", "sliced", "ragged"], columns(), MASKING),
]


@pytest.mark.parametrize(
    ("name", "form", "lists", "options"),
    [pytest.param(name, form, *drawn, id=f"{name}-{form}") for name, forms, *drawn in CASES for form in forms],
)
@given(data=st.data(), side=SIDES)
def test_with_a_tokenizer(name, form, lists, options, *, data, side):
    tokenizer = make_tokenizer(padding_side=side)
    tokenizer.mask_token = "w3"
    chosen = data.draw(options) | ({} if options is MASKING else {"max_length": 12})
    values = data.draw(lists)
    collators = both(f"DataCollator{name}", tokenizer, **chosen)
    assert_identical(*collators, features_of(values), given=FORMS[form](data.draw, values))


@pytest.mark.parametrize("form", ["dict", "record batch", "dict of arrow", "numpy"])
@given(data=st.data(), lists=columns(equal=True), framework=FRAMEWORKS)
def test_default(form, data, lists, framework):
    assert_identical(*both("DefaultDataCollator", framework), features_of(lists), given=FORMS[form](data.draw, lists))


@pytest.mark.parametrize("form", ["dict", "chunked", "ragged", "nested"])
@given(data=st.data(), lists=columns(odd=False), options=FLATTENING)
def test_flattening(form, data, lists, options):
    lists = {"input_ids": lists["input_ids"]}
    collators = both("DataCollatorWithFlattening", **options)
    assert_identical(*collators, features_of(lists), given=FORMS[form](data.draw, lists))


@pytest.mark.parametrize("form", ["dict", "BatchEncoding", "table", "polars", "dict of arrow"])
@pytest.mark.parametrize(("name", "framework"), samples.BATCHES)
def test_every_collator(name, framework, form):
    features = samples.batch(name)
    lists = {key: [feature[key] for feature in features] for key in features[0]}
    inputs = pa.table(lists) if form == "table" else None
    inputs = {key: pa.array(values) for key, values in lists.items()} if form == "dict of arrow" else inputs
    inputs = FORMS[form](None, lists) if inputs is None else inputs
    assert_identical(*samples.pair(name, return_tensors=framework), features_of(lists), given=inputs)


def in_form(value, form):
    """A row in one of ROW_FORMS, or the rows of choices; what is not a list stays as it is."""
    if not isinstance(value, list):
        return value
    return [in_form(row, form) for row in value] if value and isinstance(value[0], list) else form(value)


@pytest.mark.parametrize(("name", "framework"), samples.BATCHES)
@given(data=st.data(), equal=st.booleans())
def test_every_type_of_row(name, framework, data, equal):
    """What the reference makes of rows of these types, errors included."""
    if name == "DataCollatorWithFlattening" and not flattening_takes_arrays():
        pytest.skip("quadrat flattens rows as newer versions do")
    rows = samples.batch(name)
    rows = [rows[0]] * 3 if equal else rows
    known = st.sampled_from(sorted(ROW_FORMS))
    forms = {column: data.draw(known | st.sampled_from(sorted(OTHER_ROWS))) for column in rows[0]}
    wrappers = set(WRAPPERS)
    if name == "DataCollatorForMultipleChoice":  # older versions take the label out of the features
        wrappers -= {"proxy", "ChainMap"}
    wrapper = WRAPPERS[data.draw(st.sampled_from(["dict"] * 4 + sorted(wrappers)))]
    every = ROW_FORMS | OTHER_ROWS
    features = [wrapper({key: in_form(value, every[forms[key]]) for key, value in row.items()}) for row in rows]
    assert_identical(*samples.pair(name, return_tensors=framework), features)


@pytest.mark.parametrize("name", samples.CLASSES)
@pytest.mark.parametrize("form", ["memmap", "array of a class"])
def test_arrays_of_classes_are_as_fast_as_others(caplog, name, form):
    collator = samples.make(quadrat, name)
    rows = [{key: in_form(value, ROW_FORMS[form]) for key, value in row.items()} for row in samples.batch(name)]
    with caplog.at_level("DEBUG", logger="quadrat"):
        collator(rows)
    assert not caplog.messages


@pytest.mark.parametrize("form", OTHER_ROWS)
@pytest.mark.parametrize("name", ["DataCollatorWithPadding", "DataCollatorWithFlattening", "DefaultDataCollator"])
def test_the_remedy_of_other_rows_is_the_form_that_is_fast(caplog, name, form):
    """No message advises to remove the tokens, and what it advises does not fall back."""
    rows = [{"input_ids": OTHER_ROWS[form]([5, 6, 7])} for _ in range(3)]
    with caplog.at_level("DEBUG", logger="quadrat"):
        kind, result = outcome(samples.make(quadrat, name), rows)
    (message,) = caplog.messages
    assert "remove" not in message + str(result)
    advice = re.search(r"give (\S+\(row\))", message)
    if form == "tensor of its own":
        assert advice is None
        return
    assert kind == "returned" or str(result).endswith(f"; give {advice[1]}")
    row = eval(advice[1], {"np": np, "row": rows[0]["input_ids"]})
    caplog.clear()
    expected = samples.make(quadrat, name)([{"input_ids": [5, 6, 7]}] * 3)
    assert_same_batch(expected, samples.make(quadrat, name)([{"input_ids": row}] * 3))
    assert not caplog.messages


@pytest.mark.parametrize("make", [quadrat.Ragged.from_rows, FORMS["nested"]])
@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("name", samples.BARE)
def test_bare_rows(name, framework, make):
    """A Ragged, or a nested tensor, is a list of bare rows to the collators that take these."""
    rows = [list(range(7, 7 + n)) for n in (6, 6, 6)]
    given_as = make(rows) if make is not FORMS["nested"] else make(None, {"rows": rows})["rows"]
    assert_identical(*samples.pair(name, return_tensors=framework), rows, given=given_as)


@pytest.mark.parametrize("name", ["DefaultDataCollator", "DataCollatorWithFlattening"])
@pytest.mark.parametrize("form", [None, "torch", "numpy"])
def test_a_data_set_is_its_rows_where_the_reference_takes_one(name, form, caplog):
    dataset = datasets.Dataset.from_dict({"input_ids": [[5, 6], [7, 8]]}).with_format(form)
    batch = samples.make(quadrat, name)(dataset)
    assert_same_batch(samples.make(quadrat, name)(list(dataset)), batch)
    if form is None:
        assert_same_batch(samples.make(transformers, name)(dataset), batch)
    assert not caplog.records


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
    example = {"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1]}  # which the reference changes, too
    assert_identical(*samples.pair("DataCollatorWithPadding"), example, given=dict(example), calls=1)


def test_columns_of_different_lengths():
    uneven = {"input_ids": [[5, 6], [7]], "labels": [[1, 2]]}
    with pytest.raises(ValueError, match="column 'labels' has 1 rows where 'input_ids' has 2"):
        quadrat.DataCollatorForTokenClassification(samples.tokenizer())(uneven)
    assert_identical(*samples.pair("DataCollatorWithPadding"), uneven)  # the reference takes mappings here


IDS = pa.array([[5, 6], [7]])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"input_ids": pa.array([[5, 6], [5, None, 7]], pa.list_(pa.int32()))}, "column 'input_ids', row 1"),
        ({"input_ids": pa.array([[5, 6], None], pa.list_(pa.int32()))}, "column 'input_ids', row 1"),
        ({"input_ids": IDS, "text": pa.array(["a", "b"])}, "column 'text'"),
        ({"input_ids": IDS, "day": pa.array([1, 2], pa.timestamp("s"))}, "day"),
    ],
)
def test_columns_that_are_no_numbers_are_named(columns, message):
    with pytest.raises((TypeError, ValueError), match=message):
        quadrat.DataCollatorWithPadding(samples.tokenizer())(pa.table(columns))


def test_types_without_a_form_here_come_from_the_library():
    dates = pa.array([1, 2], pa.timestamp("s"))
    assert rows_of(pa.table({"input_ids": IDS, "day": dates}))[1] == {"input_ids": [7], "day": dates[1].as_py()}


def test_two_columns_of_one_name():
    table = pa.Table.from_arrays([pa.array([[1]]), pa.array([[2]])], names=["input_ids", "input_ids"])
    with pytest.raises(ValueError, match="two columns 'input_ids'"):
        quadrat.DataCollatorWithPadding(samples.tokenizer())(table)


ROWS_OF_ARRAYS = set(samples.CLASSES) - {"DataCollatorForMultipleChoice", "DataCollatorForWholeWordMask"}
ROWS_OF_ARRAYS -= set() if flattening_takes_arrays() else {"DataCollatorWithFlattening"}


@pytest.mark.skipif(not hasattr(torch, "uint32"), reason="this torch has no uint32, and transformers raises")
@pytest.mark.parametrize("name", sorted(ROWS_OF_ARRAYS))
def test_rows_of_unsigned_arrays(name):
    """The next version of tokenizers has rows of uint32: they are known batches, too."""
    reference, collator = samples.pair(name)
    rows = [
        {
            column: np.array(value, np.uint32) if column in ("input_ids", "attention_mask") else value
            for column, value in row.items()
        }
        for row in samples.batch(name)
    ]
    before = quadrat.stats()
    assert_identical(reference, collator, rows, calls=4)
    after = quadrat.stats()
    assert after.fell_back == before.fell_back
    assert after.remembered >= before.remembered + 3
