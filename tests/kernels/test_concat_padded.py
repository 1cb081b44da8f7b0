"""concat_padded, compiled, against its oracle: out of other memory and in place, and not a byte more."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core

DTYPES = st.sampled_from([*_core.kinds, "complex128", "S3", "V24"])
BLOCKS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40) | st.sampled_from([63, 64, 65])), max_size=6)
TOO_LONG, BAD_START, BAD = 1, 2, 7


def table(addresses, shapes):
    return np.array([(at, *shape) for at, shape in zip(addresses, shapes, strict=True)], np.int64).reshape(-1, 3)


def write(blocks, width, token, fill, *, out, rows):
    return _core.concat_padded(blocks.ctypes.data, len(blocks), width, token, fill, out.address, rows)


def batch(dtype, shape):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    return (raw % 2 if dtype == "bool" else raw).view(dtype).reshape(shape)


@given(
    dtype=DTYPES, shapes=BLOCKS, extra=st.just(0) | st.integers(0, 70),
    inner=st.sampled_from([(), (1,), (3,), (2, 4)]), in_place=st.booleans(),
)  # fmt: skip
def test_as_the_oracle(guarded, *, dtype, shapes, extra, inner, in_place):
    width = max((width for _, width in shapes), default=0) + extra
    blocks = [batch(dtype, (*shape, *inner)) for shape in shapes]
    value = batch(dtype, (1,))
    rows = sum(count for count, _ in shapes)
    out = guarded(dtype, (rows, width, *inner))
    expected = np.zeros(out.array.shape, dtype)
    oracles.concat_padded(blocks, value[0], expected)
    addresses = [block.ctypes.data for block in blocks]
    if in_place:
        flat = b"".join(block.tobytes() for block in blocks)
        out.bytes[: len(flat)] = np.frombuffer(flat, np.uint8)
        starts = np.cumsum([0, *(block.nbytes for block in blocks)])
        addresses = [out.address + int(start) for start in starts[:-1]]
    token = int(np.prod(inner, dtype=np.int64)) * np.dtype(dtype).itemsize
    assert write(table(addresses, shapes), width, token, value.tobytes(), out=out, rows=rows) is None
    assert out.holds(expected)


@pytest.mark.parametrize("in_place", [False, True])
def test_large_outputs_as_the_oracle(guarded, in_place):
    """Past the caches, see csrc/kernels/stream.hpp: rows begin and end anywhere in a cache line."""
    shapes = [(1, 70), (2, (8 << 20) // 2 + 5), (1, (8 << 20) // 2 - 3), (1, 0)]
    width = (8 << 20) // 2 + 9
    blocks = [batch("uint8", shape) for shape in shapes]
    out = guarded("uint8", (5, width))
    addresses = [block.ctypes.data for block in blocks]
    if in_place:
        flat = np.concatenate([block.reshape(-1) for block in blocks])
        out.bytes[: len(flat)] = flat
        starts = np.cumsum([0, *(block.nbytes for block in blocks)])
        addresses = [out.address + int(start) for start in starts[:-1]]
    assert write(table(addresses, shapes), width, 1, b"\x07", out=out, rows=5) is None
    row = 0
    for block in blocks:
        for line in block:
            assert np.array_equal(out.array[row, : len(line)], line)
            assert (out.array[row, len(line) :] == 7).all()
            row += 1
    assert out.intact()


NUMBERS = st.integers(-2, 6) | st.sampled_from([2**62, -(2**63), 2**63 - 1])


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4), st.integers(0, 9))
def test_writes_nothing_for_blocks_that_have_no_place(guarded, shapes, rows):
    width, left = 4, rows
    source, out = np.ones((6, width), np.int16), guarded("int16", (rows, width))
    failure = write(table([source.ctypes.data] * len(shapes), shapes), width, 2, b"\0\0", out=out, rows=rows)
    for index, (count, wide) in enumerate(shapes):
        if not 0 <= wide <= width:
            assert failure == (TOO_LONG, index, -1)
            break
        if not 0 <= count <= left:
            assert failure == (BAD_START, index, -1)
            break
        left -= count
    else:
        assert failure == (None if left == 0 else (BAD_START, len(shapes), -1))
        if failure is None:
            return
    assert out.untouched()


@pytest.mark.parametrize(
    ("width", "token", "fill", "rows"), [(-1, 4, b"1234", 0), (1, 4, b"", 0), (1, 4, b"123", 0), (1, 4, b"1234", -1)]
)
def test_arguments_no_batch_has(guarded, width, token, fill, rows):
    out = guarded("int8", 3)
    assert write(table([], []), width, token, fill, out=out, rows=rows) == (BAD, -1, -1)
    assert out.untouched()
