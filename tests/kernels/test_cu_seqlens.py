"""cu_seqlens, compiled, against its oracle."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core
from support.compiled import host

KINDS = _core.kinds
LENGTHS = st.lists(st.integers(0, 2**20), max_size=30)
OUT_OF_RANGE, BAD = _core.CODE_OUT_OF_RANGE, _core.CODE_BAD_ARGUMENT


def write(lengths, kind, out):
    lengths = np.array(lengths, np.int64)
    return host.cu_seqlens(lengths.ctypes.data, len(lengths), KINDS.index(kind), out.address)


@pytest.mark.parametrize("kind", ["int32", "int64"])
@given(lengths=LENGTHS)
def test_as_the_oracle(guarded, kind, *, lengths):
    out, expected = guarded(kind, (len(lengths) + 1,)), np.empty(len(lengths) + 1, kind)
    oracles.cu_seqlens(lengths, expected)
    assert write(lengths, kind, out) is None
    assert np.array_equal(out.array, expected)
    assert out.intact()


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_refuses_a_total_beyond_its_kind(guarded, kind):
    most = np.iinfo(kind).max
    out = guarded(kind, (4,))
    assert write([1, most - 1, 0], kind, out) is None
    assert out.array.tolist() == [0, 1, most, most]
    assert write([1, most - 1, 1], kind, out) == (OUT_OF_RANGE, 2, -1)
    assert write([most, most, 1], kind, out) == (OUT_OF_RANGE, 1, -1)
    assert write([1, -1, 1], kind, out) == (OUT_OF_RANGE, 1, -1)
    assert out.intact()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("int32", "int64")])
def test_knows_two_kinds(guarded, kind):
    out = guarded(kind, (2,))
    assert write([1], kind, out) == (BAD, -1, -1)
    assert out.untouched()
