"""separate_rows, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core
from support.compiled import host

KINDS = _core.kinds
BAD_START = _core.CODE_BAD_START


def write(start, kind, value, out):
    start, value = np.array(start, np.int64), np.full(1, value, kind)
    return host.separate_rows(
        start.ctypes.data, len(start), KINDS.index(kind), value.ctypes.data, out.address, out.array.size
    )


@pytest.mark.parametrize("kind", KINDS)
@given(size=st.integers(1, 300), data=st.data())
def test_as_the_oracle(guarded, kind, *, size, data):
    start = data.draw(st.lists(st.integers(0, size - 1), max_size=20))
    value = True if kind == "bool" else data.draw(st.integers(0 if kind.startswith("u") else -100, 100))
    out = guarded(kind, (size,))
    expected = out.array.copy()
    oracles.separate_rows(start, value, expected)
    assert write(start, kind, value, out) is None
    assert out.bytes.tobytes() == expected.tobytes()
    assert out.intact()


@pytest.mark.parametrize("bad", [-1, 5, 6, -(2**63), 2**63 - 1])
def test_refuses_a_start_outside(guarded, bad):
    out = guarded("int64", (5,))
    assert write([0, bad, 1], "int64", 7, out) == (BAD_START, 1, -1)
    assert out.intact()
