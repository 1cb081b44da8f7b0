"""take_tokens, compiled, against its oracle: any numbers, in any order, and those that are no token's."""

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
    values, out = values_of(size, token), guarded("uint8", (len(indices), token))
    expected = np.empty((len(indices), token), np.uint8)
    oracles.take_tokens(values, indices, expected)
    place = values.ctypes.data, size, token, indices.ctypes.data, len(indices)
    assert _core.take_tokens(*place, out.address) is None
    assert np.array_equal(out.array, expected)
    assert out.intact()


@given(indices_within(50, least=1), st.data(), st.sampled_from([-1, 50, 2**62, -(2**63), 2**63 - 1]))
def test_reports_a_number_that_is_no_token(guarded, indices, data, outside):
    place = data.draw(st.integers(0, len(indices) - 1))
    indices[place] = outside
    values, out = values_of(50, 3), guarded("uint8", (len(indices), 3))
    failure = _core.take_tokens(values.ctypes.data, 50, 3, indices.ctypes.data, len(indices), out.address)
    assert failure == (OUTSIDE, place, -1)
    assert out.intact()


def test_runs_past_the_end(guarded):
    indices = np.arange(45, 75)
    values, out = values_of(50, 3), guarded("uint8", (len(indices), 3))
    failure = _core.take_tokens(values.ctypes.data, 50, 3, indices.ctypes.data, len(indices), out.address)
    assert failure == (OUTSIDE, 5, -1)
    assert out.intact()


def test_arguments_no_batch_has():
    assert _core.take_tokens(0, -1, 1, 0, 0, 0) == (BAD, -1, -1)
    assert _core.take_tokens(0, 1, 1, 0, -1, 0) == (BAD, -1, -1)


def test_outputs_past_the_caches(guarded):
    size = 3000
    values = values_of(size, 4096)
    indices = np.concatenate([np.arange(10, size), np.arange(9)])
    out = guarded("uint8", (len(indices), 4096))
    place = values.ctypes.data, size, 4096, indices.ctypes.data, len(indices)
    assert _core.take_tokens(*place, out.address) is None
    assert np.array_equal(out.array, values[indices])
    assert out.intact()
