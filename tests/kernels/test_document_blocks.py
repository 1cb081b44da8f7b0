"""document_blocks, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core

LENGTHS = st.lists(st.integers(0, 12) | st.sampled_from([16, 17, 33]), max_size=6)
REACH = st.sampled_from([0, 1, 2, 7, 100, 2**63 - 1])
SIZE = st.sampled_from([1, 2, 3, 8, 16, 40])
BAD_ARGUMENT, BAD_START = _core.CODE_BAD_ARGUMENT, _core.CODE_BAD_START


def write(offsets, total, reach, size, outs):
    addresses = tuple(out.address for out in outs)
    return _core.document_blocks(np.array(offsets, np.int64), total, reach, size, addresses)


@given(lengths=LENGTHS, extra=st.integers(0, 20), reach=st.tuples(REACH, REACH), size=st.tuples(SIZE, SIZE))
def test_as_the_oracle(guarded, *, lengths, extra, reach, size):
    offsets = [sum(lengths[:row]) for row in range(len(lengths) + 1)]
    total = offsets[-1] + extra
    rows, columns = (-(-total // one) for one in size)
    outs = [guarded("int32", shape) for shape in ((rows,), (rows, columns)) * 2]
    expected = [np.empty_like(out.array) for out in outs]
    oracles.document_blocks(offsets, total, reach, size, expected)
    assert write(offsets, total, reach, size, outs) is None
    for out, right in zip(outs, expected, strict=True):
        assert np.array_equal(out.array, right)
        assert out.intact()


@pytest.mark.parametrize(
    ("offsets", "total", "reach", "size", "failure"),
    [
        ([0, 2], -1, (0, 0), (1, 1), (BAD_ARGUMENT, -1, -1)),
        ([0, 2], 2, (-1, 0), (1, 1), (BAD_ARGUMENT, -1, -1)),
        ([0, 2], 2, (0, -1), (1, 1), (BAD_ARGUMENT, -1, -1)),
        ([0, 2], 2, (0, 0), (0, 1), (BAD_ARGUMENT, -1, -1)),
        ([0, 2], 2, (0, 0), (1, 0), (BAD_ARGUMENT, -1, -1)),
        ([0, 2], 2**31, (0, 0), (128, 1), (BAD_ARGUMENT, -1, -1)),  # block numbers are int32
        ([1, 2], 2, (0, 0), (1, 1), (BAD_START, 0, -1)),
        ([0, 3], 2, (0, 0), (1, 1), (BAD_START, 1, -1)),
        ([0, 2, 1], 2, (0, 0), (1, 1), (BAD_START, 2, -1)),
    ],
)
def test_refuses(guarded, offsets, total, reach, *, size, failure):
    outs = [guarded("int32", (2,)) for _ in range(4)]
    assert write(offsets, total, reach, size, outs) == failure
    assert all(out.untouched() for out in outs)
