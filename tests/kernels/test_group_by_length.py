"""group_by_length, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core

BAD_START, BAD = _core.CODE_BAD_START, _core.CODE_BAD_ARGUMENT
# Few different lengths, so that many are equal, and such as take any number of bytes.
LENGTHS = st.lists(st.integers(0, 5) | st.integers(0, 70_000), max_size=300) | st.lists(
    st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, 255, 256, 65535, 65536]), max_size=80
)


def group(lengths, megabatch, rows):
    lengths = np.array(lengths, np.int64)
    return _core.group_by_length(lengths, megabatch, rows)


@given(LENGTHS, st.integers(1, 400) | st.just(2**62), st.randoms(use_true_random=False), st.data())
def test_as_the_oracle(guarded, lengths, megabatch, random, data):
    rows = random.sample(range(len(lengths)), data.draw(st.integers(0, len(lengths))))
    expected = np.array(rows, np.int64)
    oracles.group_by_length(lengths, megabatch, expected)
    got = guarded(np.int64, len(rows))
    got.array[:] = rows
    assert group(lengths, megabatch, got.array) is None
    assert got.intact()
    assert got.array.tolist() == expected.tolist()


@pytest.mark.parametrize("most", [0, 9, 4095, 70_000, 1 << 24, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("least", [0, -5, -(1 << 63)])
def test_many_rows(least, most):
    random = np.random.default_rng(0)
    lengths = random.integers(min(least, most), most, 5000, endpoint=True)
    rows = random.permutation(5000)
    expected = rows.copy()
    oracles.group_by_length(lengths, 5000, expected)
    assert group(lengths, 5000, rows) is None
    assert rows.tolist() == expected.tolist()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 50), st.data())
def test_names_a_row_that_there_is_not(lengths, megabatch, data):
    rows = np.arange(len(lengths))
    place = data.draw(st.integers(0, len(rows) - 1))
    rows[place] = data.draw(st.sampled_from([-1, len(lengths), -(2**63), 2**63 - 1]))
    assert group(lengths, megabatch, rows) == (BAD_START, place, -1)


@pytest.mark.parametrize("megabatch", [0, -1, -(2**63)])
def test_wants_megabatches_with_rows(megabatch):
    rows = np.arange(3)
    assert group([1, 2, 3], megabatch, rows) == (BAD, -1, -1)
    assert rows.tolist() == [0, 1, 2]
