"""mask_layout, compiled, against its oracle: what a mask keeps, anywhere in its rows, read as integers of any size."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import oracles
from quadrat import _core
from support.masks import masks

BAD, CHANGED = _core.CODE_BAD_ARGUMENT, _core.CODE_CHANGED


def place_of(mask):
    return mask.ctypes.data, mask.itemsize, mask.shape[1]


@given(masks(st.sampled_from([1, 1, 1, 2, -1, 100])))
def test_as_the_oracle(guarded, mask):
    indices, bounds, longest = oracles.mask_layout(mask)
    cu_seqlens, lengths = guarded("int32", len(mask) + 1), guarded("int32", len(mask))
    failure, *facts = _core.mask_layout(*place_of(mask), cu_seqlens.address, lengths.address, len(mask))
    assert failure is None
    assert facts == [len(indices), longest, set(np.unique(mask)) <= {0, 1}]
    assert cu_seqlens.array.tolist() == bounds
    assert lengths.array.tolist() == np.diff(bounds).tolist()
    out = guarded("int64", len(indices))
    assert _core.mask_indices(mask.ctypes.data, mask.itemsize, mask.size, out.address, len(indices)) is None
    assert out.array.tolist() == indices
    assert cu_seqlens.intact()
    assert lengths.intact()
    assert out.intact()


@given(masks(), st.data())
def test_reports_a_mask_that_has_changed(guarded, mask, data):
    if not mask.size:
        return
    kept = np.count_nonzero(mask)
    place = data.draw(st.integers(0, mask.size - 1))
    mask.reshape(-1)[place] = 0 if mask.reshape(-1)[place] else 1
    out = guarded("int64", kept)
    failure = _core.mask_indices(mask.ctypes.data, mask.itemsize, mask.size, out.address, kept)
    assert failure == (CHANGED, -1, -1)
    assert out.intact()


def test_arguments_no_mask_has(guarded):
    out = guarded("int64", 3)
    for item, width, rows in ((1, -1, 1), (1, 1, -1), (3, 1, 1)):
        assert _core.mask_layout(0, item, width, out.address, out.address, rows)[0] == (BAD, -1, -1)
    for item, size, out_size in ((1, -1, 1), (1, 0, -1), (3, 1, 1)):
        assert _core.mask_indices(0, item, size, out.address, out_size) == (BAD, -1, -1)
    assert out.untouched()
