"""seq_idx, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import oracles
from quadrat import _core

LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([63, 64, 65, 257]), max_size=8)


@given(lengths=LENGTHS, extra=st.integers(0, 70))
def test_as_the_oracle(guarded, *, lengths, extra):
    total = sum(lengths) + extra
    out, expected, sizes = guarded("int32", (total,)), np.empty(total, np.int32), np.array(lengths, np.int64)
    oracles.seq_idx(lengths, expected)
    assert _core.seq_idx(sizes.ctypes.data, len(sizes), out.address, total) is None
    assert np.array_equal(out.array, expected)
    assert out.intact()
