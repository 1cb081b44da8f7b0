"""seq_idx, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from quadrat import _core, reference

LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([63, 64, 65, 257]), max_size=8)
TOO_LONG, BAD = _core.CODE_ROW_TOO_LONG, _core.CODE_BAD_ARGUMENT


def write(lengths, out, size=None):
    lengths = np.array(lengths, np.int64)
    return _core.seq_idx(lengths.ctypes.data, len(lengths), out.address, out.array.size if size is None else size)


@given(lengths=LENGTHS, extra=st.integers(0, 70))
def test_as_the_oracle(guarded, *, lengths, extra):
    total = sum(lengths) + extra
    out, expected = guarded("int32", (total,)), np.empty(total, np.int32)
    reference.seq_idx(lengths, expected)
    assert write(lengths, out) is None
    assert np.array_equal(out.array, expected)
    assert out.intact()


@given(lengths=LENGTHS.filter(any), data=st.data())
def test_refuses_an_output_below_the_total(guarded, *, lengths, data):
    out = guarded("int32", (data.draw(st.integers(0, sum(lengths) - 1)),))
    row = next(i for i in range(len(lengths)) if sum(lengths[: i + 1]) > out.array.size)
    assert write(lengths, out) == (TOO_LONG, row, -1)
    assert out.intact()


@pytest.mark.parametrize(("lengths", "row"), [([-1], 0), ([1, -(2**63), 1], 1)])
def test_refuses_negative_lengths(guarded, lengths, row):
    out = guarded("int32", (3,))
    assert write(lengths, out) == (TOO_LONG, row, -1)
    assert out.intact()


def test_refuses_a_negative_size(guarded):
    out = guarded("int32", (1,))
    assert write([1], out, -1) == (BAD, -1, -1)
    assert out.untouched()


def test_refuses_a_negative_count(guarded):
    out = guarded("int32", (1,))
    with pytest.raises(ValueError, match="negative"):
        _core.seq_idx(0, -1, out.address, 1)
    assert out.untouched()
