"""What position_ids and seq_idx refuse: outputs below the total of the lengths, and sizes that are no sizes."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from quadrat import _core

TOO_LONG, BAD = _core.CODE_ROW_TOO_LONG, _core.CODE_BAD_ARGUMENT
LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([63, 64, 65, 257]), max_size=8)


def position_ids(lengths, rows, out, size):
    return _core.position_ids(lengths, rows, 0, out, size)


kernels = pytest.mark.parametrize(("kernel", "kind"), [(position_ids, "int64"), (_core.seq_idx, "int32")])


def write(kernel, lengths, out, size=None):
    lengths = np.array(lengths, np.int64)
    return kernel(lengths.ctypes.data, len(lengths), out.address, out.array.size if size is None else size)


@kernels
@given(lengths=LENGTHS.filter(any), data=st.data())
def test_an_output_below_the_total(guarded, kernel, kind, *, lengths, data):
    out = guarded(kind, (data.draw(st.integers(0, sum(lengths) - 1)),))
    row = next(i for i in range(len(lengths)) if sum(lengths[: i + 1]) > out.array.size)
    assert write(kernel, lengths, out) == (TOO_LONG, row, -1)
    assert out.intact()


@kernels
@pytest.mark.parametrize(("lengths", "row"), [([-1], 0), ([1, -(2**63), 1], 1)])
def test_negative_lengths(guarded, kernel, kind, lengths, row):
    out = guarded(kind, (3,))
    assert write(kernel, lengths, out) == (TOO_LONG, row, -1)
    assert out.intact()


@kernels
def test_negative_sizes(guarded, kernel, kind):
    out = guarded(kind, (1,))
    assert write(kernel, [1], out, -1) == (BAD, -1, -1)
    with pytest.raises(ValueError, match="negative"):
        kernel(0, -1, out.address, 1)
    assert out.untouched()
