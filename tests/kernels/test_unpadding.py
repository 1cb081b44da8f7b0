"""unpad, unpad_masked, take_tokens, put_tokens and mask_layout, compiled, against their oracles."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core
from support.masks import indices_within, masks

KINDS = st.sampled_from(_core.kinds)
LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([63, 64, 65, 257]), max_size=8)


def write_unpad(padded, offsets, side, out):
    offsets = np.array(offsets, np.int64)
    rows, width = padded.shape[:2]
    token = int(np.prod(padded.shape[2:], dtype=np.int64)) * padded.itemsize
    place = padded.ctypes.data, width, side == "left", (offsets.ctypes.data, rows + 1), token
    return _core.unpad(*place, out.address, len(out.array))


@given(
    kind=KINDS, lengths=LENGTHS, extra=st.just(0) | st.integers(0, 70), inner=st.sampled_from([(), (1,), (3,), (2, 4)]),
    side=st.sampled_from(["right", "left"]), before=st.integers(0, 5), after=st.integers(0, 5),
)  # fmt: skip
def test_unpad_as_the_oracle(guarded, *, kind, lengths, extra, inner, side, before, after):
    width, offsets = max(lengths, default=0) + extra, before + np.cumsum([0, *lengths])
    padded = np.random.default_rng(width).integers(0, 2, (len(lengths), width, *inner)).astype(kind)
    out = guarded(kind, (int(offsets[-1]) + after, *inner))
    expected = np.ones(out.array.shape, kind)
    oracles.unpad(padded, offsets.tolist(), side, expected)
    assert write_unpad(padded, offsets, side, out) is None
    assert out.holds(expected)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("full", [False, True])
def test_large_outputs_as_the_oracle(guarded, side, full):
    """Past the caches, see csrc/kernels/bytes.hpp: rows begin and end anywhere in a cache line."""
    width = (8 << 20) // 2 + 5
    lengths = [width] * 3 if full else [0, 1, width - 70, width - 3, width]
    padded = np.random.default_rng(0).integers(0, 256, (len(lengths), width), np.uint8)
    out = guarded("uint8", sum(lengths))
    assert write_unpad(padded, np.cumsum([0, *lengths]), side, out) is None
    rows = [row[:n] if side == "right" else row[width - n :] for row, n in zip(padded, lengths, strict=True)]
    assert out.holds(np.concatenate(rows))


@given(st.lists(st.integers(-3, 12) | st.sampled_from([2**62, -(2**63), 2**63 - 1]), min_size=1, max_size=6))
def test_writes_nothing_for_rows_that_have_no_place(guarded, offsets):
    width, size = 4, 9
    padded, out = np.ones((len(offsets) - 1, width), np.int16), guarded("int16", size)
    failure = write_unpad(padded, offsets, "right", out)
    row, longest, length = oracles.check_offsets(offsets, size)
    if row is not None:
        assert failure == (_core.CODES.BAD_START, row, -1)
    elif length > width:
        assert failure == (_core.CODES.ROW_TOO_LONG, longest, -1)
    else:
        assert failure is None
        return
    assert out.untouched()


# Runs of kept and of other tokens, shorter and longer than the words of the mask.
RUNS = st.lists(st.integers(0, 20), max_size=12)


@st.composite
def word_masks(draw):
    width = draw(st.integers(0, 70))
    rows = []
    for _ in range(draw(st.integers(0, 6))):
        runs = draw(RUNS)
        rows.append(np.resize(np.repeat(np.arange(len(runs)) % 2, runs), width) if sum(runs) else np.zeros(width))
    mask = np.array(rows).reshape(len(rows), width).astype(np.uint8)
    return mask * np.uint8(draw(st.sampled_from([1, 1, 2, 128, 255])))


def counted(mask):
    offsets = np.full(len(mask) + 3, -7, np.int64)
    assert _core.count_masked(mask.ctypes.data, mask.shape[1], (offsets.ctypes.data + 8, len(mask) + 1)) is None
    assert offsets[0] == offsets[-1] == -7
    return offsets[1:-1].copy()


@given(kind=KINDS, mask=word_masks(), inner=st.sampled_from([(), (1,), (3,), (2, 4)]))
def test_unpad_masked_as_the_oracle(guarded, *, kind, mask, inner):
    padded = np.random.default_rng(mask.size).integers(0, 2, (*mask.shape, *inner)).astype(kind)
    kept = np.count_nonzero(mask)
    expected, bounds = np.empty((kept, *inner), kind), np.zeros(len(mask) + 1, np.int64)
    oracles.unpad_masked(padded, mask, bounds, expected)
    offsets = counted(mask)
    assert np.array_equal(offsets, bounds)
    out = guarded(kind, (kept, *inner))
    token = int(np.prod(inner, dtype=np.int64)) * padded.itemsize
    place = padded.ctypes.data, mask.ctypes.data, mask.shape[1], token, (offsets.ctypes.data, len(offsets))
    assert _core.unpad_masked(*place, out.address) is None
    assert out.holds(expected)


@given(word_masks(), st.data())
def test_unpad_masked_reports_a_mask_that_has_changed(guarded, mask, data):
    if not mask.size:
        return
    offsets = counted(mask)
    row = data.draw(st.integers(0, len(mask) - 1))
    place = data.draw(st.integers(0, mask.shape[1] - 1))
    mask[row, place] = 0 if mask[row, place] else 1
    out = guarded("int16", int(offsets[-1]))
    padded = np.ones(mask.shape, np.int16)
    place = padded.ctypes.data, mask.ctypes.data, mask.shape[1], 2, (offsets.ctypes.data, len(offsets))
    failure = _core.unpad_masked(*place, out.address)
    assert failure == (_core.CODES.CHANGED, row, -1)
    assert out.intact()


TOKENS = st.sampled_from([0, 1, 3, 8, 24, 100])


def values_of(size, token):
    return np.random.default_rng(size).integers(0, 256, (size, token), np.uint8)


def take(indices, out, size=50, token=3):
    values = values_of(size, token)
    return _core.take_tokens(values.ctypes.data, size, token, (indices.ctypes.data, len(indices)), out.address)


def put(indices, out, size=50, token=3):
    values = values_of(len(indices), token)
    return _core.put_tokens(values.ctypes.data, token, (indices.ctypes.data, len(indices)), out.address, size)


@given(st.integers(0, 200).flatmap(lambda size: st.tuples(st.just(size), indices_within(size))), TOKENS)
def test_take_tokens_as_the_oracle(guarded, case, token):
    size, indices = case
    out, expected = guarded("uint8", (len(indices), token)), np.empty((len(indices), token), np.uint8)
    oracles.take_tokens(values_of(size, token), indices, expected)
    assert take(indices, out, size, token) is None
    assert out.holds(expected)


@pytest.mark.parametrize("move", [take, put])
@given(indices_within(50, least=1), st.data(), st.sampled_from([-1, 50, 2**62, -(2**63), 2**63 - 1]))
def test_reports_a_number_outside(guarded, move, indices, data, outside):
    place = data.draw(st.integers(0, len(indices) - 1))
    indices[place] = outside
    out = guarded("uint8", (len(indices) if move is take else 50, 3))
    assert move(indices, out) == (_core.CODES.OUT_OF_RANGE, place, -1)
    assert out.intact()


def test_runs_past_the_end(guarded):
    indices = np.arange(45, 75)
    out = guarded("uint8", (len(indices), 3))
    assert take(indices, out) == (_core.CODES.OUT_OF_RANGE, 5, -1)
    assert out.intact()


def test_outputs_past_the_caches(guarded):
    size = 3000
    indices = np.concatenate([np.arange(10, size), np.arange(9)])
    out = guarded("uint8", (len(indices), 4096))
    assert take(indices, out, size, 4096) is None
    assert out.holds(values_of(size, 4096)[indices])
    indices = np.concatenate([np.arange(10, 1000), np.arange(1001, size - 5)])
    out, expected = guarded("uint8", (size, 4096)), np.zeros((size, 4096), np.uint8)
    assert put(indices, out, size, 4096) is None
    expected[indices] = values_of(len(indices), 4096)
    assert out.holds(expected)


@given(st.integers(0, 200).flatmap(lambda size: st.tuples(st.just(size), indices_within(size))), TOKENS)
def test_put_tokens_as_the_oracle(guarded, case, token):
    size, indices = case
    out, expected = guarded("uint8", (size, token)), np.empty((size, token), np.uint8)
    oracles.put_tokens(values_of(len(indices), token), indices, expected)
    assert put(indices, out, size, token) is None
    assert out.holds(expected)


@given(masks(st.sampled_from([1, 1, 1, 2, -1, 100])))
def test_mask_layout_as_the_oracle(guarded, mask):
    indices, bounds, longest = oracles.mask_layout(mask)
    cu_seqlens, lengths = guarded("int32", len(mask) + 1), guarded("int32", len(mask))
    place = mask.ctypes.data, mask.itemsize, mask.shape[1]
    failure, *facts = _core.mask_layout(*place, (cu_seqlens.address, len(mask) + 1), lengths.address)
    assert failure is None
    assert facts == [len(indices), longest, set(np.unique(mask)) <= {0, 1}]
    assert cu_seqlens.holds(bounds)
    assert lengths.holds(np.diff(bounds))
    out = guarded("int64", len(indices))
    assert _core.mask_indices(mask.ctypes.data, mask.itemsize, mask.size, (out.address, len(indices))) is None
    assert out.holds(indices)


@given(masks(), st.data())
def test_mask_layout_reports_a_mask_that_has_changed(guarded, mask, data):
    if not mask.size:
        return
    kept = np.count_nonzero(mask)
    place = data.draw(st.integers(0, mask.size - 1))
    mask.reshape(-1)[place] = 0 if mask.reshape(-1)[place] else 1
    out = guarded("int64", kept)
    failure = _core.mask_indices(mask.ctypes.data, mask.itemsize, mask.size, (out.address, kept))
    assert failure == (_core.CODES.CHANGED, -1, -1)
    assert out.intact()


def test_arguments_no_batch_has(guarded):
    out, bad = guarded("int64", 3), (_core.CODES.BAD_ARGUMENT, -1, -1)
    place = out.address
    for width, rows in ((-1, 1), (1, -1)):
        assert _core.unpad(0, width, False, (0, rows + 1), 1, place, 3) == bad
        assert _core.count_masked(0, width, (place, rows + 1)) == bad
        assert _core.unpad_masked(0, 0, width, 1, (place, rows + 1), place) == bad
    assert _core.take_tokens(0, -1, 1, (0, 0), 0) == _core.take_tokens(0, 1, 1, (0, -1), 0) == bad
    assert _core.put_tokens(0, 1, (0, 0), 0, -1) == _core.put_tokens(0, 1, (0, -1), 0, 1) == bad
    for item, width, rows in ((1, -1, 1), (1, 1, -1), (3, 1, 1)):
        assert _core.mask_layout(0, item, width, (place, rows + 1), place)[0] == bad
    for item, size, out_size in ((1, -1, 1), (1, 0, -1), (3, 1, 1)):
        assert _core.mask_indices(0, item, size, (place, out_size)) == bad
    assert out.untouched()
