"""fill_ends, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core
from support.compiled import host

KINDS = _core.kinds
ROWS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20) | st.sampled_from([63, 64, 65])), max_size=8)
BAD_START, TOO_LONG = _core.CODE_BAD_START, _core.CODE_ROW_TOO_LONG


def write(start, lengths, kind, value, out):
    start, lengths, value = np.array(start, np.int64), np.array(lengths, np.int64), np.full(1, value, kind)
    where = start.ctypes.data, lengths.ctypes.data, len(lengths)
    return host.fill_ends(*where, KINDS.index(kind), value.ctypes.data, out.address, out.array.size)


@pytest.mark.parametrize("kind", ["bool", "int16", "int32", "int64", "float64"])
@given(rows=ROWS, first=st.integers(0, 5), rest=st.integers(0, 9))
def test_as_the_oracle(guarded, kind, *, rows, first, rest):
    lengths = [length for length, _ in rows]
    start = [first + sum(length + gap for length, gap in rows[:row]) for row in range(len(rows) + 1)]
    out = guarded(kind, (start[-1] + rest,))
    expected = out.array.copy()
    oracles.fill_ends(start, lengths, 1, expected)
    assert write(start, lengths, kind, True if kind == "bool" else 1, out) is None
    assert np.array_equal(out.bytes, expected.view(np.uint8))
    assert out.intact()


@pytest.mark.parametrize(
    ("start", "lengths", "failure"),
    [
        ([-1, 2], [0], (BAD_START, 0, -1)),
        ([0, 5], [0], (BAD_START, 0, -1)),
        ([0, 2, 1], [2, 0], (BAD_START, 1, -1)),
        ([0, 2], [3], (TOO_LONG, 0, -1)),
        ([0, 2], [-1], (TOO_LONG, 0, -1)),
    ],
)
def test_refuses(guarded, start, lengths, failure):
    out = guarded("int64", (4,))
    assert write(start, lengths, "int64", 0, out) == failure
    assert out.untouched()
