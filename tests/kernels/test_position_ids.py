"""position_ids, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core

LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([63, 64, 65, 257]), max_size=8)
MOST = 2**63 - 1
OUT_OF_RANGE, BAD = _core.CODE_OUT_OF_RANGE, _core.CODE_BAD_ARGUMENT


def write(lengths, start, out):
    lengths = np.array(lengths, np.int64)
    return _core.position_ids(lengths.ctypes.data, len(lengths), start, out.address, out.array.size)


@given(lengths=LENGTHS, extra=st.integers(0, 70), start=st.integers(-9, 9) | st.sampled_from([-(2**63), 2**62]))
def test_as_the_oracle(guarded, *, lengths, extra, start):
    total = sum(lengths) + (extra if any(lengths) else 0)
    out, expected = guarded("int64", (total,)), np.empty(total, np.int64)
    oracles.position_ids(lengths, start, expected)
    assert write(lengths, start, out) is None
    assert np.array_equal(out.array, expected)
    assert out.intact()


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_refuses_padding_after_no_token(guarded, lengths):
    out = guarded("int64", (3,))
    assert write(lengths, 0, out) == (BAD, -1, -1)
    assert out.untouched()


def test_counts_to_the_last_int64(guarded):
    out = guarded("int64", (3,))
    assert write([1, 2], MOST - 1, out) is None
    assert out.array.tolist() == [MOST - 1, MOST - 1, MOST]
    assert write([1, 2], MOST, out) == (OUT_OF_RANGE, 1, -1)
    assert write([2], MOST - 1, out) == (OUT_OF_RANGE, 0, -1)  # the padding counts too
