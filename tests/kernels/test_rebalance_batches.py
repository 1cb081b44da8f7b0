"""rebalance_batches, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import oracles
from quadrat import _core

BAD = _core.CODE_BAD_ARGUMENT
# Few different lengths, so that costs are equal, and some that cost more than all others together.
LENGTHS = st.lists(st.integers(0, 4) | st.integers(1, 700) | st.sampled_from([4096, 100_000]), min_size=1, max_size=64)


def balance(lengths, ranks, coefficient, moves, *, counts, ranking):
    lengths = np.array(lengths, np.int64)
    return _core.rebalance_batches(lengths, ranks, coefficient, moves, counts, ranking)


@given(LENGTHS, st.integers(1, 8), st.data())
@settings(max_examples=5 * settings().max_examples)
def test_as_the_oracle(guarded, lengths, ranks, data):
    lengths.sort(reverse=True)
    batches = data.draw(st.integers(1, len(lengths)))
    coefficient = data.draw(st.sampled_from([0.001, 0.001, 0.0, 0.1, 3.0]))
    moves = data.draw(st.sampled_from([30 * batches, 30 * batches, 0, 1, 7]))
    expected = np.zeros((2, batches), np.int64)
    oracles.rebalance_batches(lengths, ranks, coefficient, moves, counts=expected[0], ranking=expected[1])
    counts, ranking = guarded(np.int64, batches), guarded(np.int64, batches)
    assert balance(lengths, ranks, coefficient, moves, counts=counts.array, ranking=ranking.array) is None
    assert counts.intact()
    assert ranking.intact()
    assert counts.array.tolist() == expected[0].tolist()
    assert ranking.array.tolist() == expected[1].tolist()
    assert counts.array.sum() == len(lengths)
    assert counts.array.min() > 0


@pytest.mark.parametrize(
    ("lengths", "ranks", "moves", "batches", "row"),
    [
        ([3, 2], 1, 9, 3, -1),
        ([3, 2], 0, 9, 2, -1),
        ([3, 2], 1, -1, 2, -1),
        ([3, 2], 1, 2**40, 2, -1),
        ([3, 2], 1, 9, 0, -1),
        ([2, 3], 1, 9, 2, 1),
        ([3, -1], 1, 9, 2, 1),
        ([2**62, 1], 1, 9, 2, 0),
    ],
)
def test_what_is_refused(lengths, ranks, moves, batches, row):
    counts, ranking = np.zeros((2, batches), np.int64)
    assert balance(lengths, ranks, 0.001, moves, counts=counts, ranking=ranking) == (BAD, row, -1)
