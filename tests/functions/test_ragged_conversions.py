"""quadrat.Ragged: what it is converted to, and made from."""

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given

import quadrat
from support.compare import frozen
from support.ragged import INTS, KINDS, LIBRARIES, MOVED, ROWS, TRAILING, TYPES, moved, ragged

PADDING = st.fixed_dictionaries(
    {
        "padding_side": st.sampled_from(["right", "left"]),
        "max_length": st.sampled_from([None, 12]),
        "pad_to_multiple_of": st.sampled_from([None, 8]),
        "padding_value": st.integers(0, 3),
    }
)


@given(rows=ROWS, library=st.sampled_from(["np", "pt"]), options=PADDING)
def test_to_padded(rows, library, options):
    batch, _ = ragged(rows, library)
    assert frozen(batch.to_padded(**options)) == frozen(quadrat.pad(batch, **options))


@given(
    rows=ROWS, trailing=TRAILING, before=st.integers(0, 3), kind=st.sampled_from(MOVED), offsets=st.sampled_from(INTS)
)
def test_to_nested(rows, trailing, before, kind, offsets):
    batch = moved(rows, kind, trailing, before)
    batch = quadrat.Ragged(batch.values, batch.offsets.to(getattr(torch, offsets)))
    nested = batch.to_nested()
    assert nested.layout is torch.jagged
    assert nested.dtype == batch.values.dtype
    assert (nested.size(0), nested.dim()) == (len(rows), 2 + len(trailing))
    assert nested.values().untyped_storage().data_ptr() == batch.values.untyped_storage().data_ptr()
    assert nested.values().shape == (sum(map(len, rows)), *trailing)
    assert [row.tolist() for row in nested.unbind()] == batch.to_lists()


def test_to_nested_shares_the_memory_of_numpy():
    batch, values = ragged([[1], [], [2, 3]])
    nested = batch[1:].to_nested()
    nested.values()[0] = 7
    assert batch.to_lists() == [[1], [], [7, 3]]
    del batch, values
    assert [row.tolist() for row in nested.unbind()] == [[], [7, 3]]


@given(rows=ROWS, before=st.integers(0, 3))
def test_a_gradient_goes_through_to_nested(rows, before):
    batch = moved(rows, "float64", (), before)
    batch.values.requires_grad_()
    nested = batch.to_nested()
    (nested * nested).values().sum().backward()
    assert batch.values.grad.tolist() == [0] * before + [2 * number for row in rows for number in row] + [0]


def arrow_type(kind, trailing):
    """The type of a token's values."""
    dtype = {"bool": pa.bool_(), "float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}.get(kind)
    dtype = dtype or getattr(pa, kind)()
    for size in reversed(trailing):
        dtype = pa.list_(dtype, size)
    return dtype


ARROW_KINDS = st.sampled_from(KINDS)


@given(rows=ROWS, library=st.sampled_from(["np", "pt"]), kind=ARROW_KINDS, trailing=TRAILING, before=st.integers(0, 3))
def test_to_arrow(rows, library, kind, trailing, before):
    batch = moved(rows, kind, trailing, before)
    expected = batch.to_lists()
    if library == "np":
        batch = quadrat.Ragged(batch.values.numpy(), batch.offsets.numpy())
    column = batch.to_arrow()
    column.validate(full=True)
    assert column.type == pa.list_(arrow_type(kind, trailing))
    assert column.null_count == 0
    assert column.to_pylist() == expected
    if kind != "bool" and not trailing and any(rows):
        first = np.asarray(batch.values)[before:]
        assert column.values.buffers()[1].address == first.ctypes.data, "the values stay where they are"
    if rows and kind not in ("bool", "uint64"):
        again = quadrat.Ragged.from_rows(column, return_tensors="np")
        assert (again.to_lists(), again.inner_shape) == (expected, trailing)
        assert again.dtype == kind or not again.values.size
        assert quadrat.pad(column.slice(1)).tolist() == quadrat.pad(again[1:]).tolist()
    if not trailing:
        numbers = column.values.to_numpy(zero_copy_only=kind != "bool")
        assert quadrat.Ragged(numbers, column.offsets.to_numpy()).to_lists() == expected


NESTED = pa.list_(pa.list_(pa.int32()))


def test_rows_in_arrow():
    column = pa.chunked_array([pa.array([[], [[1, 2], [3, 4]]], NESTED), pa.array([[[5, 6]]], NESTED)])
    assert quadrat.pad(column, padding_side="left").tolist() == [[[0, 0], [0, 0]], [[1, 2], [3, 4]], [[0, 0], [5, 6]]]
    assert quadrat.flatten(column).values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert quadrat.pad(pa.array([[], []], NESTED)).shape == (2, 0)
    assert quadrat.pad(pa.array([[1.5], []], pa.list_(pa.float16())), return_tensors="pt").dtype == torch.float16


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2]), pa.array([["a"]]), pa.array([[1], None]), pa.array([[1, None]]), pa.array([[[1], [1, 2]]]),
        pa.array([[[1]], [[1, 2]]]), pa.array([[[1], None]]), pa.table({"rows": [[1]]}), pa.array([[True]]),
    ],
    ids=str,
)  # fmt: skip
def test_refuses_what_are_no_rows_in_arrow(column):
    with pytest.raises(TypeError, match=r"Arrow (array|rows)"):
        quadrat.pad(column)


def test_to_arrow_of_many_values():
    most = 2**31 - 1
    values = np.zeros(most + 3, np.int8)  # of which nothing is touched
    assert quadrat.Ragged(values, np.array([2, most + 2])).to_arrow().type == pa.list_(pa.int8())
    column = quadrat.Ragged(values, np.array([0, most, most + 3])).to_arrow()
    assert column.type == pa.large_list(pa.int8())
    assert column[1].as_py() == [0, 0, 0]


def test_to_arrow_outlives_the_values():
    batch = quadrat.Ragged(torch.arange(100_000), torch.tensor([0, 1, 100_000]))
    column = batch.to_arrow()
    del batch
    torch.zeros(100_000)
    assert column[1].as_py() == list(range(1, 100_000))


def test_to_arrow_of_values_that_are_not_as_stored():
    offsets = torch.tensor([0, 2, 3])
    assert quadrat.Ragged(np.arange(6)[::-2], offsets.numpy()).to_arrow().to_pylist() == [[5, 3], [1]]
    assert quadrat.Ragged(torch._neg_view(torch.arange(3)), offsets).to_arrow().to_pylist() == [[0, -1], [-2]]
    values = torch.arange(3.0).requires_grad_()
    assert quadrat.Ragged(values, offsets).to_arrow().to_pylist() == [[0, 1], [2]]


@pytest.mark.parametrize("kind", ["bfloat16", "complex64", "float8_e5m2"])
def test_to_arrow_refuses(kind):
    batch = moved([[1]], kind, (), 0)
    with pytest.raises(TypeError, match=f"Arrow has no {kind}: convert the values first"):
        batch.to_arrow()


FLOAT8 = ["float8_e4m3fn", "float8_e5m2"]


@given(rows=ROWS, kind=st.sampled_from([*MOVED, *FLOAT8]), trailing=TRAILING, before=st.integers(0, 3))
def test_to_lists(rows, kind, trailing, before):
    batch = moved(rows, kind, trailing, before)
    expected = [row.tolist() for row in batch]
    assert batch.to_lists() == expected
    kinds = {type(number) for row in batch.to_lists() for number in row}
    assert kinds == {type(number) for row in expected for number in row}
    batch.values.requires_grad_(batch.values.is_floating_point())
    assert batch.to_lists() == expected
    if kind not in ("bfloat16", *FLOAT8):
        assert quadrat.Ragged(batch.values.numpy(force=True), batch.offsets.numpy()).to_lists() == expected


@given(
    rows=ROWS,
    make=st.sampled_from([list, tuple, np.array, lambda row: torch.tensor(row, dtype=torch.int16)]),
    dtype=st.sampled_from([None, *(kind for kind in KINDS if kind != "bool"), torch.int32, float, np.int8]),
    library=st.sampled_from([None, "np", "pt"]),
    container=st.sampled_from([list, tuple]),
)
def test_from_rows_copies(rows, make, dtype, library, container):
    given_rows = container(make(row) if row or make in (list, tuple) else make([0])[:0] for row in rows)
    batch = quadrat.Ragged.from_rows(given_rows, dtype=dtype, return_tensors=library)
    tensors = len(rows) > 0 and isinstance(given_rows[0], torch.Tensor)
    wanted = library or ("pt" if tensors else "np")
    assert type(batch.values) is type(batch.offsets) is TYPES[wanted]
    if dtype is not None:
        name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else np.dtype(dtype).name
    else:
        name = "int16" if tensors and any(rows) else "int64"
    assert batch.values.dtype == getattr(LIBRARIES[wanted], name)
    assert batch.offsets.dtype == LIBRARIES[wanted].int64
    assert batch.offsets.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
    assert batch.to_lists() == rows
    for row in given_rows:
        if len(row) and isinstance(row, (np.ndarray, torch.Tensor)):
            row[:] = 111  # the copy does not see it
    assert batch.to_lists() == rows


def test_from_rows_of_numbers_without_dtype():
    assert quadrat.Ragged.from_rows([[1.5], [], [2]][:2]).values.dtype == np.float64
    assert quadrat.Ragged.from_rows([[True]]).values.dtype == np.bool_
    assert quadrat.Ragged.from_rows([np.ones(1, np.uint8), np.ones(1, np.int16)]).values.dtype == np.int64
