"""unpad, compiled, against its oracle: rows of a padded batch, of tokens of any size, and not a byte more."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core

KINDS = st.sampled_from(_core.kinds)
LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([63, 64, 65, 257]), max_size=8)
TOO_LONG, BAD_START, BAD = _core.CODE_ROW_TOO_LONG, _core.CODE_BAD_START, _core.CODE_BAD_ARGUMENT


def write(padded, offsets, side, out):
    offsets = np.array(offsets, np.int64)
    rows, width = padded.shape[:2]
    token = int(np.prod(padded.shape[2:], dtype=np.int64)) * padded.itemsize
    place = padded.ctypes.data, width, side == "left", offsets.ctypes.data, rows, token
    return _core.unpad(*place, out.address, len(out.array))


@given(
    kind=KINDS, lengths=LENGTHS, extra=st.just(0) | st.integers(0, 70), inner=st.sampled_from([(), (1,), (3,), (2, 4)]),
    side=st.sampled_from(["right", "left"]), before=st.integers(0, 5), after=st.integers(0, 5),
)  # fmt: skip
def test_as_the_oracle(guarded, *, kind, lengths, extra, inner, side, before, after):
    width, offsets = max(lengths, default=0) + extra, before + np.cumsum([0, *lengths])
    padded = np.random.default_rng(width).integers(0, 2, (len(lengths), width, *inner)).astype(kind)
    out = guarded(kind, (int(offsets[-1]) + after, *inner))
    expected = np.ones(out.array.shape, kind)
    oracles.unpad(padded, offsets.tolist(), side, expected)
    assert write(padded, offsets, side, out) is None
    assert out.bytes.tobytes() == expected.tobytes()
    assert out.intact()


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("full", [False, True])
def test_large_outputs_as_the_oracle(guarded, side, full):
    """Past the caches, see csrc/kernels/stream.hpp: rows begin and end anywhere in a cache line."""
    width = (8 << 20) // 2 + 5
    lengths = [width] * 3 if full else [0, 1, width - 70, width - 3, width]
    padded = np.random.default_rng(0).integers(0, 256, (len(lengths), width), np.uint8)
    out = guarded("uint8", sum(lengths))
    assert write(padded, np.cumsum([0, *lengths]), side, out) is None
    rows = [row[:n] if side == "right" else row[width - n :] for row, n in zip(padded, lengths, strict=True)]
    assert np.array_equal(out.array, np.concatenate(rows))
    assert out.intact()


@given(st.lists(st.integers(-3, 12) | st.sampled_from([2**62, -(2**63), 2**63 - 1]), min_size=1, max_size=6))
def test_writes_nothing_for_rows_that_have_no_place(guarded, offsets):
    width, size = 4, 9
    padded, out = np.ones((len(offsets) - 1, width), np.int16), guarded("int16", size)
    failure = write(padded, offsets, "right", out)
    for row, (first, last) in enumerate(itertools.pairwise(offsets)):
        if not 0 <= first <= size:
            assert failure == (BAD_START, row, -1)
            break
        if last < first:
            assert failure == (BAD_START, row + 1, -1)
            break
        if last - first > width or last > size:
            assert failure == (TOO_LONG, row, -1)
            break
    else:
        assert failure is None
        return
    assert out.untouched()


def test_arguments_no_batch_has(guarded):
    out = guarded("int8", 3)
    assert _core.unpad(0, -1, False, 0, 0, 1, out.address, 3) == (BAD, -1, -1)
    assert _core.unpad(0, 1, False, 0, -1, 1, out.address, 3) == (BAD, -1, -1)
    assert out.untouched()
