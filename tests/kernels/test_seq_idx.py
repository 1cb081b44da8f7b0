"""seq_idx, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core
from support.compiled import host

ROWS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20) | st.sampled_from([63, 64, 65])), max_size=8)
BAD_START, TOO_LONG, BAD_ARGUMENT = _core.CODE_BAD_START, _core.CODE_ROW_TOO_LONG, _core.CODE_BAD_ARGUMENT


def write(start, lengths, numbers, out, size):
    start, lengths = np.array(start, np.int64), np.array(lengths, np.int64)
    where = start.ctypes.data, lengths.ctypes.data, len(lengths)
    return host.seq_idx(*where, *numbers, out.array.dtype == np.int64, out.address, size)


@pytest.mark.parametrize("kind", ["int32", "int64"])
@given(rows=ROWS, rest=st.integers(0, 9), numbers=st.tuples(st.integers(-1, 1), st.integers(-1, 1)))
def test_as_the_oracle(guarded, kind, *, rows, rest, numbers):
    lengths = [length for length, _ in rows]
    start = [sum(length + gap for length, gap in rows[:row]) for row in range(len(rows))]
    total = sum(length + gap for length, gap in rows) + rest
    out, expected = guarded(kind, (total,)), np.empty(total, kind)
    oracles.seq_idx(lengths, expected, start, *numbers)
    assert write(start, lengths, numbers, out, total) is None
    assert np.array_equal(out.array, expected)
    assert out.intact()


@pytest.mark.parametrize(
    ("start", "lengths", "size", "failure"),
    [
        ([0], [1], -1, (BAD_ARGUMENT, -1, -1)),
        ([-1], [1], 4, (BAD_START, 0, -1)),
        ([5], [0], 4, (BAD_START, 0, -1)),
        ([0, 1], [2, 1], 4, (BAD_START, 1, -1)),
        ([0], [5], 4, (TOO_LONG, 0, -1)),
        ([0], [-1], 4, (TOO_LONG, 0, -1)),
        ([0], [-(2**63)], 4, (TOO_LONG, 0, -1)),
    ],
)
def test_refuses(guarded, start, lengths, size, failure):
    out = guarded("int64", (4,))
    assert write(start, lengths, (1, 0), out, size) == failure
    assert out.intact()
