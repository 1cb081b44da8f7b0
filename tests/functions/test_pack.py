"""quadrat.batching.plan_packs: what its docstring promises."""

import math
from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given

import oracles
import quadrat
from quadrat import _core
from quadrat.batching import packing

STRATEGIES = ["best_fit", "first_fit", "in_order"]
LENGTHS = st.lists(st.integers(0, 60), min_size=1, max_size=60)


def first_fit_decreasing(lengths, max_length):
    """How many packs there are."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        pack = next((pack for pack, room in enumerate(rooms) if room >= length), len(rooms))
        rooms[pack:] = rooms[pack:] or [max_length]
        rooms[pack] -= length
    return len(rooms)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(lengths=LENGTHS, extra=st.integers(0, 60))
@example(lengths=[0], extra=3)
@example(lengths=[0, 0, 0], extra=0)
def test_each_row_once_and_no_pack_too_full(strategy, lengths, extra):
    max_length = max(*lengths, 1) + extra
    packs = quadrat.batching.plan_packs(lengths, max_length, strategy)
    assert sorted(packs.values.tolist()) == list(range(len(lengths)))
    assert all(rows and sum(lengths[row] for row in rows) <= max_length for rows in packs.to_lists())
    assert len(packs) >= math.ceil(sum(lengths) / max_length)
    assert len(packs) <= first_fit_decreasing(lengths, max_length) or strategy == "in_order"
    if strategy == "in_order":
        assert packs.values.tolist() == list(range(len(lengths)))
        sizes = [sum(lengths[row] for row in rows) for rows in packs.to_lists()]
        firsts = [lengths[rows[0]] for rows in packs.to_lists()]
        assert all(size + first > max_length for size, first in zip(sizes, firsts[1:], strict=False))


def test_no_more_packs_than_first_fit_where_best_fit_alone_needs_more():
    lengths = [100, 99, 95, 93, 92, 74, 70, 65, 60, 58, 44, 41, 39, 32, 31, 20, 19, 13, 10, 9, 3, 2]
    assert len(oracles.pack_rows(lengths, 100, "best")) == 12
    assert len(quadrat.batching.plan_packs(lengths, 100)) == 11


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(lengths=LENGTHS, max_length=st.integers(1, 30))
def test_overlong_rows_in_pieces(strategy, lengths, max_length):
    """The n-th appearance of a row begins n times max_length tokens in: pieces cover each token of it once."""
    packs = quadrat.batching.plan_packs(lengths, max_length, strategy, overlong="split")
    rows, starts = packs.values, packing.piece_starts(packs, max_length)
    seen: Counter[int] = Counter()
    for row, start in zip(rows.tolist(), starts.tolist(), strict=True):
        assert start == seen[row] * max_length
        seen[row] += 1
    assert seen == {row: max(1, math.ceil(length / max_length)) for row, length in enumerate(lengths)}
    taken = np.minimum(np.array(lengths)[rows] - starts, max_length)
    assert all(part.sum() <= max_length for part in np.split(taken, packs.offsets[1:-1]))
    if strategy == "in_order":
        assert rows.tolist() == sorted(rows.tolist())


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(lengths=LENGTHS, max_length=st.integers(1, 30))
def test_overlong_rows_cut(strategy, lengths, max_length):
    packs = quadrat.batching.plan_packs(lengths, max_length, strategy, overlong="truncate")
    cut = quadrat.batching.plan_packs(np.minimum(lengths, max_length), max_length, strategy)
    assert packs.to_lists() == cut.to_lists()


@pytest.mark.parametrize("kind", ["int8", "uint16", "int32", "int64", "uint64"])
def test_any_integers(kind):
    lengths = np.array([5, 3, 8, 2, 6], kind)
    for given_ in (lengths, lengths.tolist(), tuple(lengths), lengths[::-1][::-1]):
        packs = quadrat.batching.plan_packs(given_, 8)
        assert type(packs.values) is np.ndarray
        assert packs.values.dtype == packs.offsets.dtype == np.int64
        assert packs.to_lists() == [[2], [4, 3], [0, 1]]
    packs = quadrat.batching.plan_packs(torch.tensor([5, 3, 8, 2, 6], dtype=torch.int32), np.int64(8))
    assert packs.values.dtype == packs.offsets.dtype == torch.int64
    assert packs.to_lists() == [[2], [4, 3], [0, 1]]


def test_large_packs():
    lengths = [2**40, 1, 2**40]
    assert quadrat.batching.plan_packs(lengths, 2**50, "first_fit").to_lists() == [[0, 2, 1]]
    assert quadrat.batching.plan_packs(lengths, 2**40 + 1, "first_fit").to_lists() == [[0, 1], [2]]
    assert quadrat.batching.plan_packs(lengths, 2**40, "in_order").to_lists() == [[0], [1], [2]]
    assert quadrat.batching.plan_packs([7, 9], 2**62).to_lists() == [[1, 0]], (
        "one pack that holds all needs no more room than that"
    )
    with pytest.raises(ValueError, match="max_length must be at most 134217728 with strategy='best_fit'"):
        quadrat.batching.plan_packs(lengths, 2**41)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([], 4), ValueError, "lengths are empty: there are no rows to pack"),
        (([3, -2, 1], 4), ValueError, "row 1 has the negative length -2"),
        ((["a"], 4), TypeError, "lengths must be integers"),
        (([3, 9, 5], 4), ValueError, "row 1 has 9 tokens, more than max_length=4; overlong='truncate' cuts"),
        (([3], 0), ValueError, "max_length must be from 1 to"),
        (([3], 4.0), TypeError, "max_length must be an int, not 4.0"),
        (([3], 4, "worst_fit"), ValueError, "strategy must be one of 'best_fit', 'first_fit', 'in_order', not 'worst"),
    ],
)
def test_says_what_is_wrong(arguments, error, message):
    with pytest.raises(error, match=message):
        quadrat.batching.plan_packs(*arguments)


def test_an_unknown_way_with_overlong_rows():
    with pytest.raises(ValueError, match="overlong must be one of 'error', 'truncate', 'split', not 'drop'"):
        quadrat.batching.plan_packs([3], 4, overlong="drop")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_packs_a_copy_that_no_other_thread_has(monkeypatch, strategy):
    lengths, seen, pack_rows = np.array([5, 3, 8, 2, 6]), [], _core.pack_rows

    def spy(array, *arguments):
        seen.append(array)
        return pack_rows(array, *arguments)

    monkeypatch.setattr(_core, "pack_rows", spy)
    quadrat.batching.plan_packs(lengths, 8, strategy)
    assert seen
    assert not any(np.shares_memory(array, lengths) for array in seen)
