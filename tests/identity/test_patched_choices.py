"""patch_datasets: lists of lists of multiple choice, and nulls, in Arrow."""

import datasets
import pyarrow as pa
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support.compare import assert_same_outcome, outcome
from support.samples import make

INTEGERS = st.sampled_from([pa.int16(), pa.int32(), pa.int64(), pa.uint16(), pa.uint32()])


@given(st.data())
def test_choices_are_read_where_they_lie(data):
    """Lists of rows in Arrow: nulls, other numbers of choices, slices and large lists included."""
    row = st.lists(st.integers(3, 300), max_size=4) | st.just([5, 6])
    odd = st.one_of(row, row, row, st.just([None]), st.none()) if data.draw(st.integers(0, 4)) == 0 else row
    choices = st.lists(odd, min_size=2, max_size=2) | st.lists(odd, min_size=3, max_size=3)
    choices = choices if data.draw(st.integers(0, 4)) == 0 else st.lists(odd, min_size=2, max_size=2)
    values = data.draw(st.lists(choices, min_size=1, max_size=5))
    wraps = [data.draw(st.sampled_from([pa.list_, pa.large_list])) for _ in range(2)]
    column = pa.array(values, wraps[0](wraps[1](data.draw(INTEGERS))))
    table = pa.table({"input_ids": column, "label": [0] * len(values)})
    dataset = datasets.Dataset(table).select(range(data.draw(st.integers(0, len(values) - 1)), len(values)))
    keys = list(range(len(dataset)))
    expected = outcome(make(transformers, "DataCollatorForMultipleChoice"), dataset.__getitems__(keys))
    with quadrat.data.patch_datasets():
        rows = dataset.__getitems__(keys)
        got = outcome(make(quadrat, "DataCollatorForMultipleChoice"), rows)
    assert_same_outcome(expected, got)


def test_choices_make_no_dicts():
    choices = {"input_ids": [[[5, 6], [7]], [[8], [9, 10, 11]]], "label": [0, 1]}
    with quadrat.data.patch_datasets():
        collator = make(quadrat, "DataCollatorForMultipleChoice")
        collator(datasets.Dataset.from_dict(choices)[:])  # 4.57 warns about padding with a fast tokenizer, once
        rows = datasets.Dataset.from_dict(choices).__getitems__([1, 0])
        assert collator(rows)["input_ids"].shape == (2, 2, 3)
        assert not rows.handed_out


@pytest.mark.parametrize("chosen", ["numpy", "torch"])
def test_a_null_that_datasets_fails_on_is_named(chosen):
    rows = datasets.Dataset.from_dict({"input_ids": [[5], None, [7, 8]]}).with_format(chosen)
    with quadrat.data.patch_datasets():
        with pytest.raises(AttributeError, match="quadrat: column 'input_ids', row 1 is null"):
            rows.__getitems__([1, 2])
        with pytest.raises(IndexError, match="out of"):
            rows.__getitems__([2, 9])
