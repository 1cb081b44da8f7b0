"""plan_batches, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core

OUT_OF_RANGE, BAD_ARGUMENT = _core.CODE_OUT_OF_RANGE, _core.CODE_BAD_ARGUMENT
LENGTHS = st.lists(st.integers(0, 40) | st.integers(0, 5), max_size=70)


@st.composite
def budgets(draw):
    """Tokens and rows of a batch, what it is padded to, and whether it is padded."""
    tokens = draw(st.integers(1, 200))
    return tokens, draw(st.integers(1, 9) | st.just(2**40)), draw(st.integers(1, min(tokens, 16))), draw(st.booleans())


def run(lengths, budget, window, order, batches):
    lengths = np.array(lengths, np.int64)
    return _core.plan_batches(lengths, budget, window, order, batches)


def check(guarded, lengths, order, budget, window):
    rows, batches = guarded("int64", len(order)), guarded("int64", (len(order), 3))
    rows.array[:] = order
    failure, count = run(lengths, budget, window, rows.array, batches.array)
    assert failure is None
    assert rows.intact()
    assert batches.intact()
    expected = oracles.plan_batches(lengths, order, budget, window)
    found = batches.array[:count].tolist()
    assert [rows.array[begin:end].tolist() for begin, end, _ in found] == expected
    costs = [oracles.batches._cost([lengths[row] for row in batch], *budget[2:]) for batch in expected]
    assert [cost for *_, cost in found] == costs


@given(LENGTHS, budgets(), st.integers(1, 80) | st.just(2**62), st.data())
def test_as_the_oracle(guarded, lengths, budget, window, data):
    check(guarded, lengths, data.draw(st.permutations(range(len(lengths)))), budget, window)


@pytest.mark.parametrize("window", [1, 50, 700, 1024, 3000])
@pytest.mark.parametrize("longest", [100, 5000, 2**40])
@pytest.mark.parametrize("padded", [True, False])
def test_many_rows(guarded, window, longest, padded):
    draw = np.random.default_rng(window)
    lengths, order = draw.integers(0, longest + 1, 3000).tolist(), draw.permutation(3000).tolist()
    check(guarded, lengths, order, (8 * longest, 2**40, 8, padded), window)


@pytest.mark.parametrize("length", [-1, -(2**63), 2**61 + 1, 2**63 - 1])
def test_names_a_row_of_no_length(guarded, length):
    rows, batches = guarded("int64", 3), guarded("int64", (3, 3))
    failed = run([1, 2, length], (10, 1, 1, True), 5, rows.array, batches.array)
    assert failed == ((OUT_OF_RANGE, 2, -1), 0)
    assert rows.untouched()
    assert batches.untouched()


def test_the_largest_numbers(guarded):
    most = _core.MOST_BUDGET
    for padded in (True, False):
        check(guarded, [most, most, 0, 1], [0, 1, 2, 3], (most, 2**62, most, padded), 4)


@pytest.mark.parametrize(
    ("budget", "window"),
    [
        ((0, 1, 1, True), 1),
        ((_core.MOST_BUDGET + 1, 1, 1, True), 1),
        ((5, 0, 1, True), 1),
        ((5, 1, 0, True), 1),
        ((5, 1, 6, True), 1),
        ((5, 1, 1, True), 0),
        ((5, 1, 1, True), -1),
    ],
)
def test_budgets_of_no_batch(budget, window):
    assert run([], budget, window, np.empty(0, np.int64), np.empty((0, 3), np.int64)) == ((BAD_ARGUMENT, -1, -1), 0)


@pytest.mark.parametrize(("order", "batches"), [(2, 9), (4, 9), (3, 8), (3, 12)])
def test_refuses_arrays_of_another_size(order, batches):
    with pytest.raises(ValueError, match="must have"):
        run([1, 2, 3], (10, 1, 1, True), 5, np.arange(order), np.empty(batches, np.int64))
