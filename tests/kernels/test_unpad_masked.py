"""unpad_masked, compiled, against its oracle: kept tokens anywhere in their rows, and not a byte more."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import oracles
from quadrat import _core

KINDS = st.sampled_from(_core.kinds)
CHANGED, BAD = _core.CODE_CHANGED, _core.CODE_BAD_ARGUMENT
# Runs of kept and of other tokens, shorter and longer than the words of the mask.
RUNS = st.lists(st.integers(0, 20), max_size=12)


def row_of(runs, width):
    return np.resize(np.repeat(np.arange(len(runs)) % 2, runs), width) if sum(runs) else np.zeros(width)


@st.composite
def masks(draw):
    width = draw(st.integers(0, 70))
    rows = [row_of(draw(RUNS), width) for _ in range(draw(st.integers(0, 6)))]
    mask = np.array(rows).reshape(len(rows), width).astype(np.uint8)
    return mask * np.uint8(draw(st.sampled_from([1, 1, 2, 128, 255])))


def counted(mask):
    offsets = np.full(len(mask) + 3, -7, np.int64)
    assert _core.count_masked(mask.ctypes.data, mask.shape[1], offsets.ctypes.data + 8, len(mask))
    assert offsets[0] == offsets[-1] == -7
    return offsets[1:-1].copy()


@given(kind=KINDS, mask=masks(), inner=st.sampled_from([(), (1,), (3,), (2, 4)]))
def test_as_the_oracle(guarded, *, kind, mask, inner):
    padded = np.random.default_rng(mask.size).integers(0, 2, (*mask.shape, *inner)).astype(kind)
    kept = np.count_nonzero(mask)
    expected, bounds = np.empty((kept, *inner), kind), np.zeros(len(mask) + 1, np.int64)
    oracles.unpad_masked(padded, mask, bounds, expected)
    offsets = counted(mask)
    assert np.array_equal(offsets, bounds)
    out = guarded(kind, (kept, *inner))
    token = int(np.prod(inner, dtype=np.int64)) * padded.itemsize
    place = padded.ctypes.data, mask.ctypes.data, mask.shape[1], token, offsets.ctypes.data, len(mask)
    assert _core.unpad_masked(*place, out.address) is None
    assert out.bytes.tobytes() == expected.tobytes()
    assert out.intact()


@given(masks(), st.data())
def test_reports_a_mask_that_has_changed(guarded, mask, data):
    if not mask.size:
        return
    offsets = counted(mask)
    row = data.draw(st.integers(0, len(mask) - 1))
    place = data.draw(st.integers(0, mask.shape[1] - 1))
    mask[row, place] = 0 if mask[row, place] else 1
    out = guarded("int16", int(offsets[-1]))
    padded = np.ones(mask.shape, np.int16)
    failure = _core.unpad_masked(
        padded.ctypes.data, mask.ctypes.data, mask.shape[1], 2, offsets.ctypes.data, len(mask), out.address
    )
    assert failure == (CHANGED, row, -1)
    assert out.intact()


def test_arguments_no_batch_has(guarded):
    out = guarded("int64", 3)
    assert not _core.count_masked(0, -1, out.address, 1)
    assert not _core.count_masked(0, 1, out.address, -1)
    assert _core.unpad_masked(0, 0, -1, 1, out.address, 1, out.address) == (BAD, -1, -1)
    assert _core.unpad_masked(0, 0, 1, 1, out.address, -1, out.address) == (BAD, -1, -1)
    assert out.untouched()
