"""check_offsets, compiled, against its oracle: no offsets, however hostile, pass for rows within the values."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import oracles
from quadrat import _core

BAD_START, BAD = 2, 7
HOSTILE = st.integers(-3, 12) | st.sampled_from([2**31, 2**62, -(2**63), 2**63 - 1])


def check(offsets, size):
    return _core.check_offsets(np.array(offsets, np.int64), size)


@given(st.lists(HOSTILE, min_size=1, max_size=6) | st.lists(HOSTILE, min_size=1, max_size=6).map(sorted), HOSTILE)
def test_as_the_oracle(offsets, size):
    row, longest, length = oracles.check_offsets(offsets, size)
    assert check(offsets, size) == (None if row is None else (BAD_START, row, -1), longest, length)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 5), st.integers(0, 5))
def test_names_the_first_of_the_longest_rows(lengths, before, after):
    offsets = before + np.cumsum([0, *lengths])
    length = max(lengths, default=0)
    longest = lengths.index(length) if length else 0
    assert check(offsets, int(offsets[-1]) + after) == (None, longest, length)
    assert check(offsets, int(offsets[-1]) - 1)[0] is not None


def test_wants_offsets():
    assert check([], 5) == ((BAD, -1, -1), 0, 0)
