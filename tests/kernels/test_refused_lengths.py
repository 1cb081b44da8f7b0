"""What position_ids refuses: outputs below the total of the lengths, and sizes that are no sizes."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from quadrat import _core

TOO_LONG, BAD = _core.CODE_ROW_TOO_LONG, _core.CODE_BAD_ARGUMENT
LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([63, 64, 65, 257]), max_size=8)


def write(lengths, out, size=None):
    lengths = np.array(lengths, np.int64)
    place = out.address, out.array.size if size is None else size
    return _core.position_ids(lengths.ctypes.data, len(lengths), 0, *place)


@given(lengths=LENGTHS.filter(any), data=st.data())
def test_an_output_below_the_total(guarded, *, lengths, data):
    out = guarded("int64", (data.draw(st.integers(0, sum(lengths) - 1)),))
    row = next(i for i in range(len(lengths)) if sum(lengths[: i + 1]) > out.array.size)
    assert write(lengths, out) == (TOO_LONG, row, -1)
    assert out.intact()


@pytest.mark.parametrize(("lengths", "row"), [([-1], 0), ([1, -(2**63), 1], 1)])
def test_negative_lengths(guarded, lengths, row):
    out = guarded("int64", (3,))
    assert write(lengths, out) == (TOO_LONG, row, -1)
    assert out.intact()


def test_negative_sizes(guarded):
    out = guarded("int64", (1,))
    assert write([1], out, -1) == (BAD, -1, -1)
    assert _core.position_ids(0, -1, 0, out.address, 1) == (BAD, -1, -1)
    assert out.untouched()
