"""quadrat.batching.histogram.packs_needed: what its docstring promises."""

import doctest

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
import quadrat
from quadrat.batching import histogram
from quadrat.batching.histogram import packs_needed


@given(lengths=st.lists(st.integers(0, 60), min_size=1, max_size=80), limit=st.integers(60, 150))
def test_as_many_as_best_fit_decreasing_makes(lengths, limit):
    expected = len(oracles.pack_rows(lengths, limit, "best"))
    assert packs_needed(np.bincount(lengths), limit) == expected


@given(counts=st.lists(st.integers(0, 6000), min_size=1, max_size=40), limit=st.integers(40, 200))
def test_as_many_as_pack_makes_of_many_rows(counts, limit):
    counts[-1] += 65_537
    lengths = np.repeat(np.arange(len(counts)), counts)
    assert packs_needed(counts, limit) == len(quadrat.pack(lengths, limit))


@pytest.mark.parametrize("limit", [512, 8192])
def test_as_many_as_pack_makes_of_realistic_lengths(limit):
    lengths = np.random.default_rng(0).lognormal(np.log(limit) - 2, 0.9, 200_000).astype(int).clip(1, limit)
    assert packs_needed(np.bincount(lengths), limit) == len(quadrat.pack(lengths, limit))


def test_counts_of_more_rows_than_memory_holds():
    counts = np.bincount([5, 3, 8, 2, 6]).astype(np.uint64)
    assert packs_needed(counts * np.uint64(2**60), 8) == 3 * 2**60


def test_no_rows_and_rows_without_tokens():
    assert packs_needed(np.zeros(0, np.int64), 4) == 0 == packs_needed([0, 0, 0], 4)
    assert packs_needed([7], 4) == 1 == len(quadrat.pack([0] * 7, 4))


def test_bad_input():
    with pytest.raises(ValueError, match="2 rows have 5 tokens, more than max_length=4"):
        packs_needed([0, 1, 0, 0, 0, 2], 4)
    with pytest.raises(ValueError, match="-1 rows have 2 tokens"):
        packs_needed([0, 1, -1], 4)
    with pytest.raises(ValueError, match="max_length must be"):
        packs_needed([0, 1], 0)
    for counts in ([0.5], [[1]]):
        with pytest.raises(TypeError, match="counts must be integers of one dimension"):
            packs_needed(counts, 4)


def test_examples():
    assert doctest.testmod(histogram) == (0, 4)
