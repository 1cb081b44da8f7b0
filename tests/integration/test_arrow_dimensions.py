"""Rows of more than one dimension in Arrow: batches are those that the reference makes of what `datasets` reads."""

import datasets
import numpy as np
import pyarrow as pa
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support.compare import assert_same_outcome, outcome
from support.strategies import make_tokenizer

DTYPES = st.sampled_from(["int8", "uint8", "int32", "int64", "uint64", "float16", "float32", "float64", "bool"])


def feature_of(draw, shape, dtype):
    """A feature for arrays of this shape, and whether their first dimension may differ."""
    how = draw(st.sampled_from(["array", "array of any length", "lists", "lists of a length", "list of arrays"]))
    if how == "array" and 2 <= len(shape) <= 5:
        return getattr(datasets, f"Array{len(shape)}D")(tuple(shape), dtype), False
    if how == "array of any length" and 2 <= len(shape) <= 5:
        return getattr(datasets, f"Array{len(shape)}D")((None, *shape[1:]), dtype), True
    if how == "list of arrays" and 3 <= len(shape) <= 5:
        return datasets.List(getattr(datasets, f"Array{len(shape) - 1}D")(tuple(shape[1:]), dtype)), True
    feature = datasets.Value(dtype)
    for size in reversed(shape):
        feature = datasets.List(feature, length=size) if how == "lists of a length" else datasets.List(feature)
    return feature, how != "lists of a length"


@st.composite
def stored(draw):
    """A dataset with a column `x`, and numbers of its rows."""
    count = draw(st.integers(1, 5))
    shape = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    dtype = draw(DTYPES)
    feature, ragged = feature_of(draw, shape, dtype)
    odd = draw(st.sampled_from(["", "", "", "length", "null", "inner", "empty"]))
    values = []
    for row in range(count):
        size = [draw(st.integers(1, 3)), *shape[1:]] if odd == "length" and ragged else shape
        array = (row + np.arange(int(np.prod(size)))).reshape(size)
        values.append((array / 2 if "float" in dtype else array % 2 == 1 if dtype == "bool" else array).tolist())
    if odd == "null" and dtype != "float16":
        values[draw(st.integers(0, count - 1))] = None
    plain = "Array" not in repr(feature) and "length" not in repr(feature)
    if odd == "inner" and plain:
        values[-1][-1] = values[-1][-1] * 2
    if odd == "empty" and plain:
        values[draw(st.integers(0, count - 1))] = draw(st.sampled_from([[], [[]]]))
    columns = {"input_ids": [[5, 6]] * count, "x": values}
    features = datasets.Features({"input_ids": datasets.List(datasets.Value("int64")), "x": feature})
    dataset = datasets.Dataset.from_dict(columns, features=features)
    how = draw(st.sampled_from(["plain", "select", "concatenated", "sliced"]))
    if how == "select":
        dataset = dataset.select(draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=6)))
    elif how == "concatenated":
        dataset = datasets.concatenate_datasets([dataset, dataset])
    elif how == "sliced":
        dataset = datasets.Dataset(datasets.table.InMemoryTable(dataset.data.table.slice(count // 2)), dataset.info)
    return dataset, draw(st.lists(st.integers(0, len(dataset) - 1), min_size=1, max_size=5))


@pytest.mark.parametrize("name", ["DefaultDataCollator", "DataCollatorWithPadding"])
@given(case=stored(), framework=st.sampled_from(["pt", "np"]))
def test_batches_are_those_of_the_rows(name, *, case, framework):
    dataset, keys = case
    arguments = [make_tokenizer()] if name == "DataCollatorWithPadding" else []
    reference, collator = (getattr(m, name)(*arguments, return_tensors=framework) for m in (transformers, quadrat))
    rows = dataset.__getitems__(keys)
    expected = outcome(reference, rows)
    lying = quadrat.ArrowDataset(dataset)
    for _ in range(2):
        assert_same_outcome(expected, outcome(collator, lying.__getitems__(keys)))
    assert repr(list(lying.__getitems__(keys))) == repr(rows)
    with quadrat.data.patch_datasets():
        assert_same_outcome(expected, outcome(collator, dataset.__getitems__(keys)))


def test_arrays_stay_where_they_lie():
    """No Python object is made of a row."""
    arrays = np.arange(48, dtype=np.float32).reshape(2, 4, 6)
    for feature in (datasets.Array2D((4, 6), "float32"), datasets.List(datasets.List(datasets.Value("float32")))):
        dataset = datasets.Dataset.from_dict({"x": list(arrays)}, features=datasets.Features({"x": feature}))
        rows = quadrat.ArrowDataset(dataset).__getitems__([1, 0])
        columns = quadrat._core.collect(rows, None, quadrat.support.memory.interop())[1]
        assert columns.trailing(0) == (6,)
        assert quadrat.DefaultDataCollator()(rows)["x"].tolist() == arrays[::-1].tolist()


@pytest.mark.parametrize(
    "said", ["[[2, 3]", "[[3, 2], 1]", "[[2, 3, 1], 1]", "[[2, -1], 1]", "[[], 1]", "", "[[2, x", "[["]
)
def test_what_a_type_says_of_its_shape(said):
    """Only lists of the lengths that it says are rows; elsewhere the values are those of the library."""
    lists = pa.array([[[1, 2, 3], [4, 5, 6]]])
    metadata = {
        "ARROW:extension:name": "datasets.features.features.Array2DExtensionType",
        "ARROW:extension:metadata": said,
    }
    field = pa.field("x", lists.type, metadata=metadata)

    class Given:
        def __arrow_c_array__(self, requested_schema=None):
            return pa.RecordBatch.from_arrays([lists], schema=pa.schema([field])).__arrow_c_array__(requested_schema)

    parts = quadrat._core.arrow_columns(Given())
    table = quadrat._core.Table(*parts, lambda *_: "as the library says")
    rows = quadrat.input.rows.Rows(table)
    columns = quadrat._core.collect(rows, None, quadrat.support.memory.interop())[1]
    assert columns.trailing(0) == ((3,) if said == "[[2, 3]" else ())
    assert rows[0] == {"x": "as the library says"}
