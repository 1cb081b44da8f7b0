"""separate_rows, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from quadrat import _core, reference

KINDS = _core.kinds
BAD_START, OUT_OF_RANGE = _core.CODE_BAD_START, _core.CODE_OUT_OF_RANGE


def write(start, kind, value, out):
    start = np.array(start, np.int64)
    return _core.separate_rows(start.ctypes.data, len(start), KINDS.index(kind), value, out.address, out.array.size)


@pytest.mark.parametrize("kind", KINDS)
@given(size=st.integers(1, 300), data=st.data())
def test_as_the_oracle(guarded, kind, *, size, data):
    start = data.draw(st.lists(st.integers(0, size - 1), max_size=20))
    value = True if kind == "bool" else data.draw(st.integers(0 if kind.startswith("u") else -100, 100))
    out = guarded(kind, (size,))
    expected = out.array.copy()
    reference.separate_rows(start, value, expected)
    assert write(start, kind, value, out) is None
    assert out.bytes.tobytes() == expected.tobytes()
    assert out.intact()


@pytest.mark.parametrize("bad", [-1, 5, 6, -(2**63), 2**63 - 1])
def test_refuses_a_start_outside(guarded, bad):
    out = guarded("int64", (5,))
    assert write([0, bad, 1], "int64", 7, out) == (BAD_START, 1, -1)
    assert out.intact()


@pytest.mark.parametrize(("kind", "value"), [("int8", 128), ("uint64", -1), ("int64", 0.5), ("int64", 2**63)])
def test_refuses_a_value_beyond_the_kind(guarded, kind, value):
    out = guarded(kind, (1,))
    assert write([0], kind, value, out) == (OUT_OF_RANGE, -1, -1)
    assert out.untouched()


@pytest.mark.parametrize("kind", KINDS)
@given(filled=st.integers(0, 40), rest=st.integers(0, 300))
def test_fill_tail_writes_what_is_left(guarded, kind, *, filled, rest):
    out = guarded(kind, (filled + rest,))
    expected = out.array.copy()
    value = kind == "bool" or 1
    expected[filled:] = value
    assert _core.fill_tail(out.address, KINDS.index(kind), filled, filled + rest, value) is None
    assert out.bytes.tobytes() == expected.tobytes()
    assert out.intact()
