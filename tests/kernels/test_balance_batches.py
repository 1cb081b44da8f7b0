"""balance_batches, compiled, against its oracle."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core

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


def run(guarded, lengths, batches, budget, ranks, steps, step_order):  # noqa: PLR0917
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
def test_as_the_oracle(guarded, case, ranks, more, ordered, random):  # noqa: PLR0917
    lengths, batches, budget = case
    steps = max(1, len(batches) // ranks + more)
    step_order = random.sample(range(steps), steps) if ordered else None
    order, out = run(guarded, *case, ranks, steps, step_order)
    expected = oracles.balance_batches(lengths, batches, budget, ranks, steps=steps, step_order=step_order)
    found = out.array.tolist()
    assert [order[begin:end].tolist() for begin, end, _ in found] == [batch for step in expected for batch in step]
    for begin, end, cost in found:
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
def test_refuses_arrays_of_another_size(room, order, out):
    places = None if order is None else np.arange(order)
    batches, made = np.ones(room, np.int64), np.zeros(out, np.int64)
    with pytest.raises(ValueError, match="must have"):
        _core.balance_batches(np.ones(2, np.int64), (5, 5, 1, True), np.arange(2), batches, 1, 1, places, made)
