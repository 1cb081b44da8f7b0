"""quadrat.flatten: what its docstring promises."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import oracles
import quadrat
from support.compare import frozen
from support.ragged import NUMBERS, TYPES, dtypes_for, rows_of_a_form


@given(
    batch=rows_of_a_form(),
    start=st.integers(-5, 5),
    multiple_of=st.none() | st.integers(1, 17),
    library=st.sampled_from([None, "np", "pt"]),
    data=st.data(),
)
def test_flattens_as_the_oracle(*, batch, start, multiple_of, library, data):
    rows, arrays, number, kind, own_library = batch
    empty = kind == "int64" and not any(map(len, arrays))
    dtype = None if empty else data.draw(st.none() | st.sampled_from(dtypes_for(number, kind)))
    fill = data.draw(NUMBERS[int if empty else number])
    out = quadrat.flatten(
        rows,
        position_ids_start=start,
        pad_to_multiple_of=multiple_of,
        padding_value=fill,
        dtype=getattr(torch, dtype) if dtype is not None and data.draw(st.booleans()) else dtype,
        return_tensors=library,
    )
    lengths = [len(row) for row in arrays]
    tokens = sum(lengths)
    total = -(-tokens // (multiple_of or 1)) * (multiple_of or 1)
    expected = {
        "values": np.full(total, fill, dtype or kind),
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
        assert type(got) is TYPES[library or own_library], name
        assert frozen(np.asarray(got)) == frozen(array), name
    assert type(out.max_length) is int
    assert out.max_length == max(lengths, default=0)


@pytest.mark.parametrize(
    ("error", "rows", "options", "message"),
    [
        (TypeError, [[1]], {"padding_value": "x"}, "'x'"),
        (OverflowError, [[1]], {"padding_value": 0.5, "pad_to_multiple_of": 2}, "0.5"),
        (OverflowError, [[1]], {"padding_value": 256, "dtype": "uint8", "pad_to_multiple_of": 2}, "256"),
        (OverflowError, [[1, 2]], {"position_ids_start": 2**63 - 1}, str(2**63 - 1)),
        (OverflowError, [[1, 2]], {"position_ids_start": 2**63}, str(2**63)),
        (ValueError, [[1]], {"pad_to_multiple_of": 0}, "multiple_of"),
    ],
)
def test_refuses(error, rows, options, message):
    with pytest.raises(error, match=message):
        quadrat.flatten(rows, **options)
