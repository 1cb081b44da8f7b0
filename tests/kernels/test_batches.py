"""Batches of rows, and how they are shared out, compiled, against their oracles."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core

OUT_OF_RANGE, BAD = _core.CODES.OUT_OF_RANGE, _core.CODES.BAD_ARGUMENT
PLANNED_LENGTHS = st.lists(st.integers(0, 40) | st.integers(0, 5), max_size=70)


@st.composite
def budgets(draw):
    """Tokens and rows of a batch, what it is padded to, and whether it is padded."""
    tokens = draw(st.integers(1, 200))
    return tokens, draw(st.integers(1, 9) | st.just(2**40)), draw(st.integers(1, min(tokens, 16))), draw(st.booleans())


def plan(lengths, budget, window, order, batches):
    lengths = np.array(lengths, np.int64)
    return _core.plan_batches(lengths, budget, window, order, batches)


def check_plan(guarded, lengths, order, budget, window):
    rows, batches = guarded("int64", len(order)), guarded("int64", (len(order), 3))
    rows.array[:] = order
    failure, count = plan(lengths, budget, window, rows.array, batches.array)
    assert failure is None
    assert rows.intact()
    assert batches.intact()
    expected = oracles.plan_batches(lengths, order, budget, window)
    planned = batches.array[:count].tolist()
    assert [rows.array[begin:end].tolist() for begin, end, _ in planned] == expected
    costs = [oracles.batches._cost([lengths[row] for row in batch], *budget[2:]) for batch in expected]
    assert [cost for *_, cost in planned] == costs


@given(PLANNED_LENGTHS, budgets(), st.integers(1, 80) | st.just(2**62), st.data())
def test_plans_as_the_oracle(guarded, lengths, budget, window, data):
    check_plan(guarded, lengths, data.draw(st.permutations(range(len(lengths)))), budget, window)


@pytest.mark.parametrize("window", [1, 50, 700, 1024, 3000])
@pytest.mark.parametrize("longest", [100, 5000, 2**40])
@pytest.mark.parametrize("padded", [True, False])
def test_plans_many_rows(guarded, window, longest, padded):
    draw = np.random.default_rng(window)
    lengths, order = draw.integers(0, longest + 1, 3000).tolist(), draw.permutation(3000).tolist()
    check_plan(guarded, lengths, order, (8 * longest, 2**40, 8, padded), window)


@pytest.mark.parametrize("length", [-1, -(2**63), 2**61 + 1, 2**63 - 1])
def test_names_a_row_of_no_length(guarded, length):
    rows, batches = guarded("int64", 3), guarded("int64", (3, 3))
    failed = plan([1, 2, length], (10, 1, 1, True), 5, rows.array, batches.array)
    assert failed == ((OUT_OF_RANGE, 2, -1), 0)
    assert rows.untouched()
    assert batches.untouched()


def test_the_largest_numbers(guarded):
    most = _core.MOST_BUDGET
    for padded in (True, False):
        check_plan(guarded, [most, most, 0, 1], [0, 1, 2, 3], (most, 2**62, most, padded), 4)


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
    assert plan([], budget, window, np.empty(0, np.int64), np.empty((0, 3), np.int64)) == ((BAD, -1, -1), 0)


@pytest.mark.parametrize(("order", "batches"), [(2, 9), (4, 9), (3, 8), (3, 12)])
def test_plan_refuses_arrays_of_another_size(order, batches):
    with pytest.raises(ValueError, match="must have"):
        plan([1, 2, 3], (10, 1, 1, True), 5, np.arange(order), np.empty(batches, np.int64))


BUDGETS = st.tuples(st.integers(30, 90), st.just(50), st.integers(1, 8), st.booleans())


@st.composite
def planned(draw):
    """Lengths, batches of any rows, a budget that they need not keep."""
    sizes = draw(st.lists(st.integers(1, 4) | st.just(1) | st.integers(1, 40), min_size=1, max_size=20))
    lengths = draw(st.lists(st.integers(0, 20), min_size=sum(sizes), max_size=sum(sizes)))
    order = draw(st.permutations(range(sum(sizes))))
    bounds = np.cumsum([0, *sizes]).tolist()
    batches = [order[first:last] for first, last in pairwise(bounds)]
    return lengths, batches, draw(BUDGETS)


def balance(guarded, lengths, batches, budget, ranks, steps, step_order):  # noqa: PLR0917
    order = np.array([row for batch in batches for row in batch], np.int64)
    ends = np.cumsum([len(batch) for batch in batches])
    room = guarded("int64", (max(len(batches), steps * ranks), 3))
    for i, batch in enumerate(batches):
        cost = oracles.batches._cost([lengths[row] for row in batch], *budget[2:])
        room.array[i] = ends[i] - len(batch), ends[i], cost
    out = guarded("int64", (steps * ranks, 3))
    sizes, places = np.array(lengths, np.int64), None if step_order is None else np.array(step_order, np.int64)
    assert _core.balance_batches(sizes, budget, order, room.array, len(batches), ranks, places, out.array)
    assert room.intact()
    assert out.intact()
    return order, out


@given(planned(), st.integers(1, 9), st.integers(-2, 4) | st.integers(-20, 20), st.booleans(), st.randoms())
def test_balances_as_the_oracle(guarded, case, ranks, extra_steps, ordered, random):  # noqa: PLR0917
    lengths, batches, budget = case
    steps = max(1, len(batches) // ranks + extra_steps)
    step_order = random.sample(range(steps), steps) if ordered else None
    order, out = balance(guarded, *case, ranks, steps, step_order)
    expected = oracles.balance_batches(lengths, batches, budget, ranks, steps=steps, step_order=step_order)
    balanced = out.array.tolist()
    assert [order[begin:end].tolist() for begin, end, _ in balanced] == [batch for step in expected for batch in step]
    for begin, end, cost in balanced:
        assert cost == oracles.batches._cost([lengths[row] for row in order[begin:end]], *budget[2:])


NONE = np.empty(0, np.int64)


@pytest.mark.parametrize(("count", "ranks", "steps"), [(0, 1, 1), (1, 0, 0), (1, -1, 0), (1, 1, 0)])
def test_no_batches_no_ranks_and_no_steps(count, ranks, steps):
    batches, out = np.zeros((1, 3), np.int64), np.zeros((steps, 3), np.int64)
    assert not _core.balance_batches(NONE, (5, 5, 1, True), NONE, batches, count, ranks, None, out)


@pytest.mark.parametrize(
    ("room", "order", "out"),
    [((3, 3), None, (2, 3)), ((1, 3), None, (2, 3)), ((2, 3), 3, (2, 3)), ((2, 3), None, (7,))],
)
def test_balance_refuses_arrays_of_another_size(room, order, out):
    places = None if order is None else np.arange(order)
    batches, result = np.ones(room, np.int64), np.zeros(out, np.int64)
    with pytest.raises(ValueError, match="must have"):
        _core.balance_batches(np.ones(2, np.int64), (5, 5, 1, True), np.arange(2), batches, 1, 1, places, result)
