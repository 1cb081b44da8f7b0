"""plan_shapes, compiled, against its oracle: all choices of widths."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core

BAD_ARGUMENT, OUT_OF_RANGE = _core.CODES.BAD_ARGUMENT, _core.CODES.OUT_OF_RANGE


@st.composite
def widths_to_choose(draw):
    """A few widths, how many rows there are of each, and how many a batch of it has: by a budget, or any number."""
    widths = sorted(draw(st.sets(st.integers(1, 60), min_size=1, max_size=9)))
    counts = draw(st.lists(st.integers(0, 40) | st.integers(0, 4), min_size=len(widths), max_size=len(widths)))
    budget = draw(st.integers(max(widths), 300))
    rows = [budget // width for width in widths]
    if draw(st.booleans()):
        rows = draw(st.lists(st.integers(1, 20), min_size=len(widths), max_size=len(widths)))
    return widths, counts, rows


def run(case, costs, chosen):
    return _core.plan_shapes(*(np.array(one, np.int64) for one in case), costs, chosen)


@given(widths_to_choose(), st.integers(1, 10), st.integers(0, 3))
def test_no_choice_is_better(guarded, case, shapes, more):
    costs, chosen = guarded("int64", shapes + more), guarded("int64", shapes)
    assert run(case, costs.array, chosen.array) is None
    assert costs.intact()
    assert chosen.intact()
    assert costs.array.tolist() == oracles.plan_shapes(*case, shapes + more)
    places = [place for place in chosen.array.tolist() if place >= 0]
    assert chosen.array.tolist() == sorted(set(places)) + [-1] * (shapes - len(places))
    assert oracles.batches._shapes_cost(*case, places) == costs.array[shapes - 1]


def costs_of_all_pairs(widths, counts, rows, most):
    """The tokens of the best plans of at most 1, 2, ... widths, where each width is compared with all below it."""
    below, batches, widths = np.concatenate([[0], np.cumsum(counts)]), np.array(rows), np.array(widths)
    best, costs = np.array([0, *[2**40] * len(widths)]), []
    for _ in range(most):
        made = [0]
        for last in range(len(widths)):
            left = below[last + 1] - below[: last + 1]
            made.append((best[: last + 1] + -(-left // batches[last]) * batches[last] * widths[last]).min())
        best = np.array(made)
        costs.append(int(best[-1]))
    return costs


@given(
    st.integers(10, 250), st.sampled_from([1, 3, 40]), st.integers(0, 5), st.integers(1, 250), st.integers(0, 2**32 - 1)
)  # fmt: skip
def test_no_pair_that_is_left_out_is_better(widths, rows, budget, most, seed):
    """Budgets from one row of the widest to all rows; as many shapes as widths, and more than are of use."""
    draw = np.random.default_rng(seed)
    chosen = np.sort(draw.choice(np.arange(1, 8 * widths), widths, replace=False))
    case = chosen, draw.integers(0, rows + 1, widths), np.maximum(1, int(chosen[-1]) * 4**budget // chosen)
    costs, places = np.empty(most, np.int64), np.empty(most, np.int64)
    assert run(case, costs, places) is None
    assert costs.tolist() == costs_of_all_pairs(*case, most)
    used = [-1, *places[places >= 0]]
    numbers = [case[1][first + 1 : last + 1].sum() for first, last in itertools.pairwise(used)]
    each = case[2][used[1:]]
    assert (-(-np.array(numbers) // each) * each * chosen[used[1:]]).sum() == costs[-1]


@pytest.mark.parametrize("width", [8, 2**40])
def test_many_widths(width):
    """Of equal numbers of rows of each width, the best widths for batches of one row are at equal distances."""
    widths, ones = np.arange(1, 1001) * width, np.ones(1000, np.int64)
    costs, chosen = np.empty(4, np.int64), np.empty(4, np.int64)
    assert _core.plan_shapes(widths, ones, ones, costs, chosen) is None
    assert chosen.tolist() == [249, 499, 749, 999]
    assert costs.tolist() == [1000 * 1000 * width, 750 * 1000 * width, 666667 * width, 625 * 1000 * width]


def test_as_many_shapes_as_widths():
    """No row fills a batch, so each width is of use: for more widths there is no memory."""
    widths, ones = np.arange(5001, 10_001), np.ones(5000, np.int64)
    costs, chosen = np.empty(838, np.int64), np.empty(838, np.int64)
    assert _core.plan_shapes(widths[:2000], ones[:2000], ones[:2000], *np.empty((2, 2000), np.int64)) is None
    assert _core.plan_shapes(widths, ones, ones, costs, chosen) is None
    assert costs[-1] < costs[-2]
    more = np.empty((2, 839), np.int64)
    assert _core.plan_shapes(widths, ones, ones, *more) == (_core.CODES.ROW_TOO_LONG, 838, -1)


@pytest.mark.parametrize(
    ("case", "costs", "chosen", "failure"),
    [
        (([], [], []), 1, 1, (BAD_ARGUMENT, -1, -1)),
        (([1], [1], [1]), 1, 0, (BAD_ARGUMENT, -1, -1)),
        (([1], [1], [1]), 1, 2, (BAD_ARGUMENT, -1, -1)),
        (([0], [1], [1]), 1, 1, (OUT_OF_RANGE, 0, -1)),
        (([2, 2], [1, 1], [1, 1]), 1, 1, (OUT_OF_RANGE, 1, -1)),
        (([1, 2], [1, -1], [1, 1]), 1, 1, (OUT_OF_RANGE, 1, -1)),
        (([1, 2], [1, 1], [0, 1]), 1, 1, (OUT_OF_RANGE, 0, -1)),
        (([1, 2], [1, 1], [1, 2**60 + 1]), 1, 1, (OUT_OF_RANGE, 1, -1)),
        (([1, 2], [2**60, 1], [1, 1]), 1, 1, (OUT_OF_RANGE, 1, -1)),
    ],
)
def test_what_is_refused(guarded, case, costs, chosen, failure):
    costs, chosen = guarded("int64", costs), guarded("int64", chosen)
    assert run(case, costs.array, chosen.array) == failure
    assert costs.untouched()
    assert chosen.untouched()


@pytest.mark.parametrize("sizes", [(2, 3, 3), (3, 2, 3), (3, 3, 4)])
def test_refuses_arrays_of_another_size(sizes):
    with pytest.raises(ValueError, match="must have"):
        run([range(1, size + 1) for size in sizes], np.empty(1, np.int64), np.empty(1, np.int64))
