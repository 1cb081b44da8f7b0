"""concat_padded, compiled, against its oracle; pieces below one another in memory that grows."""

import gc
import mmap
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core

DTYPES = st.sampled_from([*_core.kinds, "complex128", "S3", "V24"])
BLOCKS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40) | st.sampled_from([63, 64, 65])), max_size=6)
TOO_LONG, BAD_START, BAD = 1, 2, 7


def table_of(addresses, shapes):
    return np.array([(at, *shape) for at, shape in zip(addresses, shapes, strict=True)], np.int64).reshape(-1, 3)


def write_concat(blocks, width, token, fill, *, out, rows):
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
    assert write_concat(table_of(addresses, shapes), width, token, value.tobytes(), out=out, rows=rows) is None
    assert out.holds(expected)


@pytest.mark.parametrize("in_place", [False, True])
def test_large_outputs_as_the_oracle(guarded, in_place):
    """Past the caches, see csrc/kernels/bytes.hpp: rows begin and end anywhere in a cache line."""
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
    assert write_concat(table_of(addresses, shapes), width, 1, b"\x07", out=out, rows=5) is None
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
    failure = write_concat(table_of([source.ctypes.data] * len(shapes), shapes), width, 2, b"\0\0", out=out, rows=rows)
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
    assert write_concat(table_of([], []), width, token, fill, out=out, rows=rows) == (BAD, -1, -1)
    assert out.untouched()


# Rows and width; up to and past the size from which memory is mapped: csrc/memory/growing.cpp.
SHAPES = st.tuples(st.integers(0, 4), st.integers(0, 9)) | st.tuples(
    st.just(1), st.sampled_from([4096, 1 << 17, (1 << 18) - 1, 1 << 18, 300_001])
)
STATM = Path("/proc/self/statm")


def piece(seed, shape, inner=()):
    return np.random.default_rng(seed).integers(0, 256, (*shape, *inner), np.uint8)


def append(memory, part, count=None):
    memory.append(len(memory) if count is None else count, part.ctypes.data, *part.shape[:2])


def flat(parts):
    return np.concatenate([np.empty(0, np.uint8), *(part.reshape(-1) for part in parts)])


def assert_holds(memory, parts):
    """The first pieces, whatever comes after them."""
    blocks = memory.blocks(len(parts))
    assert blocks[:, 1:].tolist() == [list(part.shape[:2]) for part in parts]
    values = memory.values(len(parts))
    assert values.dtype == np.uint8
    assert values.flags.writeable
    assert np.array_equal(values, flat(parts))
    ends = np.cumsum([0, *(part.nbytes for part in parts)])[:-1]
    assert not parts or (blocks[:, 0] - blocks[0, 0]).tolist() == ends.tolist()


@pytest.mark.slow
@given(st.data(), st.sampled_from([(), (3,), (0,)]))
def test_is_a_list_of_pieces(data, inner):
    """Any order of operations, as on a list of arrays. Arrays that were handed out stay as they are."""
    memory, parts, held = _core.Gathered(int(np.prod(inner, dtype=int))), [], []
    for step in range(data.draw(st.integers(0, 8))):
        operation = data.draw(st.sampled_from(["append", "append", "append", "rows", "pad", "back", "hold", "copy"]))
        if operation == "append":
            part = piece(step, data.draw(SHAPES), inner)
            append(memory, part, len(parts))
            parts.append(part)
        elif operation == "rows":
            rows = [piece(step, (1, width), inner) for width in data.draw(st.lists(st.integers(0, 9), max_size=5))]
            source, widths = flat(rows), np.array([row.shape[1] for row in rows], np.int64)
            memory.append_rows(len(parts), source.ctypes.data, widths.ctypes.data, len(rows))
            parts += rows
        elif operation == "pad" and 0 not in inner:
            widest = max((part.shape[1] for part in parts), default=0)
            memory.pad(len(parts), b"\x07")
            for number, part in enumerate(parts):
                out = np.empty((len(part), widest, *inner), np.uint8)
                oracles.concat_padded([part], 7, out)
                parts[number] = out
        elif operation == "back":  # what comes after these has not been committed
            parts = parts[: data.draw(st.integers(0, len(parts)))]
        elif operation == "hold":
            values = memory.values(len(parts))
            held.append((values, values.copy(), values.ctypes.data))
        elif operation == "copy":
            other = memory.copy(len(parts))
            append(other, piece(step, (2, 3), inner))
            assert_holds(other, [*parts, piece(step, (2, 3), inner)])
    for values, before, address in held:
        assert values.ctypes.data == address
        assert np.array_equal(values, before)
    assert_holds(memory, parts)
    values = memory.values(len(parts))
    del memory
    gc.collect()
    assert np.array_equal(values, flat(parts))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=5), st.sampled_from(["int64", "V3"]))
def test_the_same_pieces_of_other_numbers(shapes, dtype):
    memory = _core.Gathered(1)
    parts = [piece(number, shape) for number, shape in enumerate(shapes)]
    for part in parts:
        append(memory, part)
    converted = flat(parts).astype(np.int64) if dtype == "int64" else np.repeat(flat(parts), 3).view(dtype)
    other = memory.retyped(len(parts), converted.ctypes.data, converted.itemsize)
    assert other.blocks(len(parts))[:, 1:].tolist() == memory.blocks(len(parts))[:, 1:].tolist()
    assert other.values(len(parts)).tobytes() == converted.tobytes()
    assert_holds(memory, parts)


def test_grows_in_its_place_once_nobody_holds_it():
    memory = _core.Gathered(1)
    append(memory, piece(0, (1, 300_000)))
    values = memory.values(1)
    append(memory, piece(1, (1, 9)))
    assert memory.blocks(1)[0, 0] != values.ctypes.data, "it is held"
    address = memory.blocks(1)[0, 0]
    del values
    append(memory, piece(2, (1, 9)))
    assert memory.blocks(1)[0, 0] == address


def test_refuses_more_than_there_is():
    memory = _core.Gathered(8)
    part = np.arange(9).reshape(3, 3)
    memory.append(0, part.ctypes.data, 3, 3)
    widths = np.array([2, 1 << 60])
    for rows, width in [(1 << 31, 1 << 31), (1 << 62, 1 << 62), (1, 1 << 60), (1 << 60, 1)]:
        with pytest.raises(MemoryError):
            memory.append(1, part.ctypes.data, rows, width)
        with pytest.raises(MemoryError):
            memory.append_rows(1, part.ctypes.data, widths.ctypes.data, 2)
    with pytest.raises(ValueError, match="negative"):
        memory.append(1, part.ctypes.data, -1, 3)
    memory.append(1, part.ctypes.data, 1 << 60, 0)  # they hold nothing, but would when padded
    with pytest.raises(MemoryError):
        memory.pad(2, b"12345678")
    memory.append(1, part.ctypes.data, 1, 1)
    with pytest.raises(ValueError, match="a multiple of"):
        memory.pad(2, b"123")
    assert np.array_equal(memory.values(1).view(np.int64), np.arange(9))


def test_refuses_pieces_that_are_not_there():
    memory, part = _core.Gathered(1), piece(0, (2, 3))
    append(memory, part)
    widths = np.zeros(1, np.int64)
    for call in (
        lambda: memory.append(2, part.ctypes.data, 2, 3),
        lambda: memory.append_rows(2, part.ctypes.data, widths.ctypes.data, 1),
        lambda: memory.pad(2, b"0"),
        lambda: memory.copy(2),
        lambda: memory.retyped(2, part.ctypes.data, 1),
        lambda: memory.blocks(2),
        lambda: memory.values(2),
    ):
        with pytest.raises(IndexError, match="there are 1 batches, not 2"):
            call()
    assert_holds(memory, [part])


def resident():
    return int(STATM.read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not STATM.exists(), reason="only Linux says what is resident")
def test_takes_up_what_was_written():
    """Neither growing nor room to spare is paid for in memory; two huge pages may be mapped for their first byte."""
    size, steps = 1 << 20, 64
    part = np.ones((1, size), np.uint8)
    memory = _core.Gathered(1)
    append(memory, part)
    before = resident()
    most = 0
    for step in range(steps):
        append(memory, part[:, : size - step])
        most = max(most, resident())
    memory.pad(len(memory), b"\x07")
    most = max(most, resident())
    assert most - before < size * steps + (8 << 20)
    array = memory.values(len(memory))
    assert resident() - before < size * steps + (8 << 20)
    del array, memory
    gc.collect()
    assert resident() - before < size * steps // 2
