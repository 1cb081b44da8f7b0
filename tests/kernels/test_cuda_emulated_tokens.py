"""mask_layout and take_tokens for CUDA, compiled as C++, against their oracles."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from quadrat import _core
from support.compiled import emulated
from support.emulated import address, shifted
from support.masks import indices_within, masks

NOT_PLAIN, NOT_IN_FRONT, NOT_AT_END = _core.MASK_NOT_PLAIN, _core.MASK_NOT_IN_FRONT, _core.MASK_NOT_AT_END


def seen_in(mask: Any) -> int:
    """What mask_layout says of a mask besides its numbers."""
    kept, seen = mask != 0, 0 if set(np.unique(mask)) <= {0, 1} else NOT_PLAIN
    for row in kept:
        seen |= NOT_IN_FRONT if (np.diff(row.astype(int)) > 0).any() else 0
        seen |= NOT_AT_END if (np.diff(row.astype(int)) < 0).any() else 0
    return seen


def check(guarded: Any, mask: Any) -> None:
    rows, width = mask.shape
    indices, bounds, longest = oracles.mask_layout(mask)
    state = guarded("int64", 4 + rows * -(-width // _core.MASK_SEGMENT))
    places, offsets = guarded("int64", mask.size), guarded("int64", rows + 1)
    cu_seqlens, lengths = guarded("int32", rows + 1), guarded("int32", rows)
    outs = state, places, offsets, cu_seqlens, lengths
    emulated.mask_layout(address(mask), mask.itemsize, rows, width, *(out.address for out in outs))
    assert state.array[:3].tolist() == [len(indices), longest, seen_in(mask)]
    assert places.array[: len(indices)].tolist() == indices
    assert offsets.array.tolist() == cu_seqlens.array.tolist() == bounds
    assert lengths.array.tolist() == np.diff(bounds).tolist()
    assert all(out.intact() for out in outs)


@given(masks(st.sampled_from([1, 1, 1, 2, -1])))
def test_mask_layout(guarded: Any, mask: Any) -> None:
    if mask.size:
        check(guarded, mask)


@given(st.integers(1, 4), st.integers(1000, 3100), st.integers(0, 2**32), st.sampled_from([0.02, 0.5, 1.0]))
def test_mask_layout_of_rows_with_several_segments(
    guarded: Any, rows: int, width: int, seed: int, share: float
) -> None:
    check(guarded, np.random.default_rng(seed).random((rows, width)) < share)


@given(
    st.integers(0, 200).flatmap(lambda size: st.tuples(st.just(size), indices_within(size))),
    st.sampled_from([1, 2, 3, 4, 8, 12, 16, 24, 48, 100, 112]),
    st.lists(st.integers(-3, 300), max_size=3),
    st.sampled_from([0, 1, 2, 4, 8]),
)
def test_take_tokens(guarded: Any, case: Any, token: int, others: list[int], by: int) -> None:
    size, indices = case
    indices = np.concatenate([indices, np.array(others, np.int64)])
    values = shifted(np.random.default_rng(size).integers(0, 256, (size, token), np.uint8), by)
    expected = np.empty((len(indices), token), np.uint8)
    oracles.take_tokens(values, indices, expected)
    out = guarded("uint8", by + expected.size)
    emulated.take_tokens(address(values), size, token, address(indices), len(indices), out.address + by)
    assert np.array_equal(out.array[by:], expected.reshape(-1))
    assert out.intact()


def test_arguments_that_no_batch_has() -> None:
    out = np.zeros(64, np.int64)
    place = address(out)
    for rows, width in ((0, 3), (3, 0), (-1, 1), (1, -1)):
        with pytest.raises(ValueError, match="must"):
            emulated.mask_layout(place, 1, rows, width, place, place, place, place, place)
    with pytest.raises(ValueError, match="item must be"):
        emulated.mask_layout(place, 3, 1, 1, place, place, place, place, place)
    with pytest.raises(ValueError, match="multiple of the size"):
        emulated.mask_layout(place, 1, 1, 1, place + 4, place, place, place, place)
    for size, token, count in ((-1, 1, 1), (1, -1, 1), (1, 1, -1), (2**61, 8, 1)):
        with pytest.raises(ValueError, match=r"must not be negative|too large"):
            emulated.take_tokens(place, size, token, place, count, place)
    with pytest.raises(ValueError, match="null"):
        emulated.take_tokens(0, 1, 1, place, 1, place)
