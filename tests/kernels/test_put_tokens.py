"""put_tokens, compiled, against its oracle: places in any order, zeros elsewhere, and places that are none."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import oracles
from quadrat import _core
from support.masks import indices_within

BAD, OUTSIDE = _core.CODE_BAD_ARGUMENT, _core.CODE_OUT_OF_RANGE
TOKENS = st.sampled_from([0, 1, 3, 8, 24, 100])


def values_of(size, token):
    return np.random.default_rng(size).integers(0, 256, (size, token), np.uint8)


@given(st.integers(0, 200).flatmap(lambda size: st.tuples(st.just(size), indices_within(size))), TOKENS)
def test_as_the_oracle(guarded, case, token):
    size, indices = case
    values, out = values_of(len(indices), token), guarded("uint8", (size, token))
    expected = np.empty((size, token), np.uint8)
    oracles.put_tokens(values, indices, expected)
    failure = _core.put_tokens(values.ctypes.data, token, indices.ctypes.data, len(indices), out.address, size)
    assert failure is None
    assert np.array_equal(out.array, expected)
    assert out.intact()


@given(indices_within(50, least=1), st.data(), st.sampled_from([-1, 50, 2**62, -(2**63), 2**63 - 1]))
def test_reports_a_place_that_is_none(guarded, indices, data, outside):
    place = data.draw(st.integers(0, len(indices) - 1))
    indices[place] = outside
    values, out = values_of(len(indices), 3), guarded("uint8", (50, 3))
    failure = _core.put_tokens(values.ctypes.data, 3, indices.ctypes.data, len(indices), out.address, 50)
    assert failure == (OUTSIDE, place, -1)
    assert out.intact()


def test_arguments_no_batch_has():
    assert _core.put_tokens(0, 1, 0, 0, 0, -1) == (BAD, -1, -1)
    assert _core.put_tokens(0, 1, 0, -1, 0, 1) == (BAD, -1, -1)


def test_outputs_past_the_caches(guarded):
    size = 3000
    indices = np.concatenate([np.arange(10, 1000), np.arange(1001, size - 5)])
    values, out = values_of(len(indices), 4096), guarded("uint8", (size, 4096))
    failure = _core.put_tokens(values.ctypes.data, 4096, indices.ctypes.data, len(indices), out.address, size)
    assert failure is None
    expected = np.zeros((size, 4096), np.uint8)
    expected[indices] = values
    assert np.array_equal(out.array, expected)
    assert out.intact()
