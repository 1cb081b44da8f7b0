"""quadrat.flatten: what its docstring promises."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import oracles
import quadrat
from quadrat import _core

KINDS = _core.kinds
TYPES = {"np": np.ndarray, "pt": torch.Tensor}
FORMS = {
    "list": list,
    "tuple": tuple,
    "np": lambda row: np.array(row, np.int16),
    "pt": lambda row: torch.tensor(row, dtype=torch.int16),
}


@st.composite
def batches(draw):
    """Rows of one form, the arrays they are, their dtype and library."""
    rows = draw(st.lists(st.lists(st.integers(-100, 100), max_size=20), max_size=8))
    form = draw(st.sampled_from(["list", "tuple", "np", "pt", "Ragged np", "Ragged pt"]))
    arrays = [np.array(row, np.int16) for row in rows]
    if form.startswith("Ragged"):
        values, offsets = np.concatenate([*arrays, np.empty(0, np.int16)]), np.cumsum([0, *map(len, rows)])
        library = torch.from_numpy if form.endswith("pt") else np.asarray
        made = quadrat.Ragged(library(values), library(offsets))
    else:
        made = [FORMS[form](row) for row in rows]
    plain = form in ("list", "tuple") or (not form.startswith("Ragged") and not any(rows))
    tensors = form == "Ragged pt" or (form == "pt" and bool(rows))
    return made, arrays, "int64" if plain else "int16", "pt" if tensors else "np"


@given(
    batch=batches(),
    start=st.integers(-5, 5),
    multiple_of=st.none() | st.integers(1, 17),
    fill=st.integers(-100, 100),
    library=st.sampled_from([None, "np", "pt"]),
    dtype=st.sampled_from([None, "int32", "float64", torch.int64]),
)
def test_flattens_as_the_oracle(*, batch, start, multiple_of, fill, library, dtype):
    rows, arrays, kind, own = batch
    out = quadrat.flatten(
        rows,
        position_ids_start=start,
        pad_to_multiple_of=multiple_of,
        padding_value=fill,
        dtype=dtype,
        return_tensors=library,
    )
    kind = kind if dtype is None else str(dtype).removeprefix("torch.")
    lengths = [len(row) for row in arrays]
    tokens = sum(lengths)
    total = -(-tokens // (multiple_of or 1)) * (multiple_of or 1)
    expected = {
        "values": np.full(total, fill, kind),
        "position_ids": np.empty(total, np.int64),
        "seq_idx": np.empty(total, np.int32),
        "cu_seqlens": np.empty(len(lengths) + 1, np.int32),
    }
    oracles.copy_rows(arrays, np.cumsum([0, *lengths])[:-1].tolist(), expected["values"])
    oracles.position_ids(lengths, start, expected["position_ids"])
    oracles.seq_idx(lengths, expected["seq_idx"])
    oracles.cu_seqlens(lengths, expected["cu_seqlens"])
    assert out._fields == (*expected, "max_length")
    for name, array in expected.items():
        got = getattr(out, name)
        assert type(got) is TYPES[library or own], name
        got = np.asarray(got)
        assert (got.dtype, got.shape) == (array.dtype, array.shape), name
        assert got.tobytes() == array.tobytes(), name
    assert type(out.max_length) is int
    assert out.max_length == max(lengths, default=0)


@given(
    lengths=st.lists(st.integers(0, 9), max_size=6),
    trailing=st.lists(st.integers(1, 3), max_size=3),
    kind=st.sampled_from(KINDS),
    tensors=st.booleans(),
    multiple_of=st.none() | st.integers(1, 5),
)
def test_keeps_trailing_dimensions(*, lengths, trailing, kind, tensors, multiple_of):
    shape = (sum(lengths), *trailing)
    values = (np.arange(np.prod(shape)) % 2 + 1).reshape(shape).astype(kind)
    convert = torch.from_numpy if tensors else np.asarray
    ragged = quadrat.Ragged(convert(values), convert(np.cumsum([0, *lengths])))
    out = quadrat.flatten(ragged, pad_to_multiple_of=multiple_of)
    got = np.asarray(out.values)
    assert got.dtype == kind
    assert got.shape[1:] == tuple(trailing)
    assert np.array_equal(got[: len(values)], values)
    assert not got[len(values) :].any()
    assert len(out.position_ids) == len(out.seq_idx) == len(got)
    assert np.array_equal(np.diff(np.asarray(out.cu_seqlens)), lengths)


def test_a_slice_begins_where_it_begins():
    ragged = quadrat.Ragged(np.arange(9), np.array([0, 2, 5, 9]))
    out = quadrat.flatten(ragged[1:])
    assert out.values.tolist() == [2, 3, 4, 5, 6, 7, 8]
    assert out.cu_seqlens.tolist() == [0, 3, 7]


@pytest.mark.parametrize(
    ("error", "rows", "options", "message"),
    [
        (TypeError, "rows", {}, "not str"),
        (TypeError, [[1], None], {}, "row 1 is the NoneType None"),
        (TypeError, [[1], [1, 2.5]], {}, "row 1, position 1"),
        (TypeError, [[1], [1.5]], {"dtype": "int64"}, "row 1"),
        (TypeError, [[1]], {"padding_value": "x"}, "'x'"),
        (OverflowError, [[1], [1, 128]], {"dtype": "int8"}, "row 1"),
        (OverflowError, [[1]], {"padding_value": 0.5, "pad_to_multiple_of": 2}, "0.5"),
        (OverflowError, [[1]], {"padding_value": 256, "dtype": "uint8", "pad_to_multiple_of": 2}, "256"),
        (OverflowError, [[1, 2]], {"position_ids_start": 2**63 - 1}, str(2**63 - 1)),
        (OverflowError, [[1, 2]], {"position_ids_start": 2**63}, str(2**63)),
        (ValueError, [[1]], {"pad_to_multiple_of": 0}, "multiple_of"),
        (ValueError, [[1]], {"return_tensors": "tf"}, "'tf'"),
    ],
)
def test_refuses(error, rows, options, message):
    with pytest.raises(error, match=message):
        quadrat.flatten(rows, **options)
