"""The CUDA kernels of flat batches, compiled as C++ and run on the CPU, against reference.py and hostile input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quadrat import reference

emulated = pytest.importorskip("quadrat._emulated", reason="needs a build with QUADRAT_EMULATE=ON")

INT64 = np.iinfo(np.int64)
LENGTHS = st.lists(st.integers(0, 9) | st.sampled_from([31, 32, 33, 255, 256, 257, 513]), max_size=12)
ORIGINS = st.integers(0, 5) | st.sampled_from([2**31, 2**40])  # the offsets of a slice do not begin at 0
# Few blocks: threads take several rows and elements each, as they would of huge inputs.
BLOCKS = st.sampled_from([1, 2, 3, 7, 65535])
HOSTILE = (
    st.integers(-3, 40)
    | st.sampled_from([INT64.min, INT64.min + 1, INT64.max - 1, INT64.max, 2**32 + 5, -(2**40)])
    | st.integers(INT64.min, INT64.max)
)


def address(array):
    return array.ctypes.data


def offsets_of(lengths, origin):
    return origin + np.cumsum([0, *lengths], dtype=np.int64)


@given(lengths=LENGTHS.filter(any), origin=ORIGINS, extra=st.integers(0, 300), start=st.integers(-5, 5), blocks=BLOCKS)
def test_position_ids(guarded, *, lengths, origin, extra, start, blocks):
    offsets = offsets_of(lengths, origin)
    out, expected = guarded("int64", (sum(lengths) + extra,)), np.empty(sum(lengths) + extra, np.int64)
    reference.position_ids(lengths, start, expected)
    emulated.position_ids(address(offsets), len(lengths), start, out.address, expected.size, blocks)
    assert np.array_equal(out.array, expected)
    assert out.intact()


@given(LENGTHS.filter(bool), ORIGINS, st.integers(0, 300), BLOCKS)
def test_seq_idx(guarded, lengths, origin, extra, blocks):
    offsets = offsets_of(lengths, origin)
    out, expected = guarded("int32", (sum(lengths) + extra,)), np.empty(sum(lengths) + extra, np.int32)
    reference.seq_idx(lengths, expected)
    emulated.seq_idx(address(offsets), len(lengths), out.address, expected.size, blocks)
    assert np.array_equal(out.array, expected)
    assert out.intact()


@pytest.mark.parametrize("kind", ["int32", "int64"])
@given(LENGTHS, ORIGINS, BLOCKS)
def test_cu_seqlens(guarded, kind, lengths, origin, blocks):
    offsets = offsets_of(lengths, origin)
    out, expected = guarded(kind, (len(lengths) + 1,)), np.empty(len(lengths) + 1, kind)
    reference.cu_seqlens(lengths, expected)
    emulated.cu_seqlens(address(offsets), len(lengths), out.array.itemsize, out.address, blocks)
    assert np.array_equal(out.array, expected)
    assert out.intact()


@pytest.mark.parametrize("item", [1, 2, 4, 8])
@given(starts=st.lists(HOSTILE, max_size=12), size=st.integers(0, 40), blocks=BLOCKS, value=st.integers(0, 2**64 - 1))
def test_separate_rows(guarded, item, *, starts, size, blocks, value):
    start = np.array(starts, np.int64)
    out = guarded(f"u{item}", (size,))
    expected = out.array.copy()
    value %= 2 ** (8 * item)
    reference.separate_rows([one for one in starts if 0 <= one < size], value, expected)
    emulated.separate_rows(address(start), len(starts), item, value, out.address, size, blocks)
    assert np.array_equal(out.array, expected)
    assert out.intact()


@given(st.lists(HOSTILE, min_size=2, max_size=8), st.integers(0, 40), HOSTILE, BLOCKS)
def test_hostile_offsets_change_nothing_outside(guarded, offsets, size, start, blocks):
    rows, source = len(offsets) - 1, np.array(offsets, np.int64)
    positions, sequences = guarded("int64", (size,)), guarded("int32", (size,))
    emulated.position_ids(address(source), rows, start, positions.address, size, blocks)
    emulated.seq_idx(address(source), rows, sequences.address, size, blocks)
    bounds = guarded("int32", (rows + 1,))
    emulated.cu_seqlens(address(source), rows, 4, bounds.address, blocks)
    assert positions.intact()
    assert sequences.intact()
    assert bounds.intact()
    assert bounds.array.tolist() == [int(np.uint32((one - offsets[0]) % 2**32).view(np.int32)) for one in offsets]
    untouched = np.frombuffer(b"\xa5" * 4, np.int32)[0]
    assert set(sequences.array.tolist()) <= {-1, *range(rows), untouched}


@given(HOSTILE, HOSTILE, HOSTILE, st.integers(0, INT64.max))
def test_token_run_stays_inside(begin, end, origin, size):
    first, length = emulated.token_run(begin, end, origin, size)
    assert 0 <= first <= first + length <= size
    if 0 <= begin - origin <= size:
        assert (first, length) == (begin - origin, min(max(end - begin, 0), size - first))
    else:
        assert length == 0


@pytest.mark.parametrize("lengths", [[3, 0], [0, 2, 0, 0]])
def test_padding_continues_the_last_row_with_tokens(guarded, lengths):
    out = guarded("int64", (6,))
    offsets = offsets_of(lengths, 0)
    emulated.position_ids(address(offsets), len(lengths), 0, out.address, 6)
    assert out.array.tolist() == list(range(6))


def test_nothing_to_do():
    """No rows, and null addresses for what has no elements."""
    emulated.position_ids(0, 0, 0, 0, 0)
    emulated.seq_idx(0, 0, 0, 0)
    emulated.separate_rows(0, 0, 8, 0, 0, 0)
    offsets = np.zeros(4, np.int64)
    emulated.position_ids(address(offsets), 3, 0, 0, 0)
    emulated.seq_idx(address(offsets), 3, 0, 0)
    emulated.separate_rows(address(offsets), 3, 8, 0, 0, 0)


GOOD = {
    "position_ids": {"offsets": 64, "rows": 2, "start": 0, "out": 64, "out_size": 4},
    "seq_idx": {"offsets": 64, "rows": 2, "out": 64, "out_size": 4},
    "cu_seqlens": {"offsets": 64, "rows": 2, "item": 4, "out": 64},
    "separate_rows": {"start": 64, "rows": 2, "item": 4, "value": 1, "out": 64, "out_size": 4},
}
BAD = [
    ({"rows": -1}, "must not be negative"),
    ({"out_size": -1}, "must not be negative"),
    ({"item": 3}, "item must be"),
    ({"item": 0}, "item must be"),
    ({"out": 65}, "not a multiple"),
    ({"out": 0}, "null"),
    ({"offsets": 68}, "not a multiple"),
    ({"offsets": 0}, "null"),
]


@pytest.mark.parametrize(
    ("kernel", "change", "message"),
    [(kernel, *bad) for kernel, bad in itertools.product(GOOD, BAD) if bad[0].keys() <= GOOD[kernel].keys()],
)
def test_arguments_no_kernel_can_take(kernel, change, message):
    """Nothing is read or written: the addresses are not real."""
    with pytest.raises(ValueError, match=message):
        getattr(emulated, kernel)(**GOOD[kernel] | change)


@pytest.mark.parametrize("kernel", ["position_ids", "seq_idx"])
def test_padding_needs_a_row(kernel):
    with pytest.raises(ValueError, match="without rows"):
        getattr(emulated, kernel)(**GOOD[kernel] | {"rows": 0})
