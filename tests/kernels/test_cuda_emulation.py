"""The CUDA kernels, compiled as C++ and run on the CPU, against reference.py and against hostile input."""

from __future__ import annotations

import contextlib
import itertools
import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quadrat import reference

emulated = pytest.importorskip("quadrat._emulated", reason="needs a build with QUADRAT_EMULATE=ON")

DTYPES = [np.dtype(name) for name in ("bool", "uint8", "int16", "int32", "float32", "int64", "uint64", "float64")]
INT64 = np.iinfo(np.int64)
CANARY = 0xA5
MARGIN = 64
MOST_BLOCKS = 65535

# Around the sizes of a warp and a block (32 and 256), where shares of threads begin and end.
lengths_lists = st.lists(
    st.one_of(st.integers(0, 9), st.sampled_from([31, 32, 33, 64, 255, 256, 257, 300, 513])), max_size=12
)
dtypes = st.sampled_from(DTYPES)
sides = st.sampled_from(["right", "left"])
# Few blocks: threads take several rows and elements each, as they would of huge inputs.
blocks = st.sampled_from([1, 2, 3, 7, MOST_BLOCKS])
hostile = st.one_of(
    st.integers(-3, 40),
    st.sampled_from([INT64.min, INT64.min + 1, INT64.max - 1, INT64.max, 2**31, 2**32 + 5, -(2**40)]),
    st.integers(INT64.min, INT64.max),
)


class Guarded:
    """An array between margins of canary bytes, filled with them itself."""

    def __init__(self, shape: int | tuple[int, ...], dtype: np.dtype[Any]) -> None:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.bytes = np.full(MARGIN + size + MARGIN, CANARY, np.uint8)
        self.inside = slice(MARGIN, MARGIN + size)
        # Element bytes as unsigned integers, so that comparisons are of bits.
        self.array = self.bytes[self.inside].view(f"u{dtype.itemsize}").reshape(shape)
        self.address = address(self.array)

    def check_margins(self) -> None:
        outside = np.ones(len(self.bytes), bool)
        outside[self.inside] = False
        assert (self.bytes[outside] == CANARY).all()


@dataclass
class Case:
    lengths: list[int]
    values: np.ndarray
    offsets: np.ndarray
    width: int
    side: str
    max_blocks: int

    @property
    def rows(self) -> list[np.ndarray]:
        return [self.values[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]

    @property
    def layout(self) -> tuple[int, int, int, bool]:
        return address(self.offsets), len(self.lengths), self.width, self.side == "left"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    lengths = draw(lengths_lists)
    dtype = draw(dtypes)
    before = draw(st.integers(0, 5))  # the offsets of a slice do not begin at 0
    offsets = before + np.cumsum([0, *lengths], dtype=np.int64)
    size = int(offsets[-1]) + draw(st.integers(0, 5))
    values = (np.arange(size) * 7919 + draw(st.integers(0, 255))).astype(dtype)
    width = max(lengths, default=0) + draw(st.one_of(st.just(0), st.integers(0, 300)))
    return Case(lengths, values, offsets, width, draw(sides), draw(blocks))


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def bits_of(value: Any, dtype: np.dtype[Any]) -> int:
    return int(np.array([value], dtype).view(f"u{dtype.itemsize}")[0])


def starts_of(case: Case) -> list[int]:
    if case.side == "right":
        return [row * case.width for row in range(len(case.lengths))]
    return [(row + 1) * case.width - length for row, length in enumerate(case.lengths)]


def unsigned(rows: list[np.ndarray]) -> list[np.ndarray]:
    return [row.view(f"u{row.itemsize}") for row in rows]


@given(cases())
def test_copy_rows_padded(case: Case) -> None:
    out = Guarded((len(case.lengths), case.width), case.values.dtype)
    expected = out.array.copy()
    reference.copy_rows(unsigned(case.rows), starts_of(case), expected.reshape(-1))
    values, item = case.values, case.values.itemsize
    offsets, rows, width, left = case.layout
    emulated.copy_rows(
        address(values), values.size, offsets, rows, 0, width, left, item, out.address, out.array.size, case.max_blocks
    )
    assert np.array_equal(out.array, expected)
    out.check_margins()


@given(cases(), st.integers(0, 40), st.randoms())
def test_copy_rows_to_given_starts(case: Case, space: int, random: Any) -> None:
    starts = np.zeros(len(case.lengths), np.int64)
    position = 0
    for row in random.sample(range(len(case.lengths)), len(case.lengths)):
        position += random.randint(0, space)
        starts[row] = position
        position += case.lengths[row]
    out = Guarded(position + space, case.values.dtype)
    expected = out.array.copy()
    reference.copy_rows(unsigned(case.rows), starts.tolist(), expected)
    values, item = case.values, case.values.itemsize
    offsets, rows, _, _ = case.layout
    emulated.copy_rows(
        address(values),
        values.size,
        offsets,
        rows,
        address(starts),
        0,
        False,
        item,
        out.address,
        out.array.size,
        case.max_blocks,
    )
    assert np.array_equal(out.array, expected)
    out.check_margins()


@given(cases(), st.integers(0, 2**64 - 1))
def test_fill_gaps(case: Case, value: int) -> None:
    dtype = case.values.dtype
    bits = value % 2 ** (8 * dtype.itemsize)
    out = Guarded((len(case.lengths), case.width), dtype)
    expected = out.array.copy()
    reference.fill_gaps(case.lengths, case.side, bits, expected)
    emulated.fill_gaps(*case.layout, dtype.itemsize, bits, out.address, case.max_blocks)
    assert np.array_equal(out.array, expected)
    out.check_margins()


@given(cases())
def test_attention_mask(case: Case) -> None:
    dtype = case.values.dtype
    out = Guarded((len(case.lengths), case.width), dtype)
    expected = np.empty(out.array.shape, dtype)
    reference.attention_mask(case.lengths, case.side, expected)
    emulated.attention_mask(*case.layout, dtype.itemsize, bits_of(1, dtype), out.address, case.max_blocks)
    assert np.array_equal(out.array.view(dtype), expected)
    out.check_margins()


@given(cases())
def test_copy_and_fill_write_every_element_once(case: Case) -> None:
    dtype = np.dtype(np.int32)
    ones = np.ones(int(case.offsets[-1]), dtype)
    out = Guarded((len(case.lengths), case.width), dtype)
    offsets, rows, width, left = case.layout
    emulated.copy_rows(address(ones), ones.size, offsets, rows, 0, width, left, 4, out.address, out.array.size)
    emulated.fill_gaps(*case.layout, 4, 0, out.address)
    mask = np.empty(out.array.shape, dtype)
    reference.attention_mask(case.lengths, case.side, mask)
    assert np.array_equal(out.array, mask)


@given(
    offsets=st.lists(hostile, min_size=1, max_size=8),
    starts=st.lists(hostile, min_size=7, max_size=7),
    padded=st.booleans(),
    size=st.integers(0, 40),
    width=st.integers(0, 40),
    dtype=dtypes,
    side=sides,
    max_blocks=blocks,
)
def test_copy_rows_with_hostile_offsets(
    *,
    offsets: list[int],
    starts: list[int],
    padded: bool,
    size: int,
    width: int,
    dtype: np.dtype[Any],
    side: str,
    max_blocks: int,
) -> None:
    rows = len(offsets) - 1
    values = Guarded(size, dtype)
    fill = 0x5A
    values.array.view(np.uint8)[:] = fill
    out = Guarded((rows, width), dtype)
    before = out.array.copy()
    source = np.array(offsets, np.int64)
    start = np.array(starts[:rows], np.int64)
    emulated.copy_rows(
        values.address,
        size,
        address(source),
        rows,
        0 if padded else address(start),
        width,
        side == "left",
        dtype.itemsize,
        out.address,
        out.array.size,
        max_blocks,
    )
    out.check_margins()
    values.check_margins()
    # What was written comes from the values, and not from the canaries around them.
    expected = before.reshape(-1)
    expected_rows = [cut(a, b, size) for a, b in itertools.pairwise(offsets)]
    value = int(np.full(dtype.itemsize, fill, np.uint8).view(f"u{dtype.itemsize}")[0])
    for row, length in enumerate(expected_rows):
        if padded:
            kept = min(length, width)
            first = row * width + (width - kept if side == "left" else 0)
        else:
            first = int(start[row])
            kept = min(length, out.array.size - first) if 0 <= first <= out.array.size else 0
            first = first if kept else 0
        expected[first : first + kept] = value
    assert np.array_equal(out.array.reshape(-1), expected)


def cut(begin: int, end: int, size: int) -> int:
    """How many elements of a row lie inside the values."""
    return max(0, min(end, size) - min(max(begin, 0), size))


@given(st.lists(hostile, min_size=1, max_size=8), st.integers(0, 40), dtypes, sides, blocks)
def test_fill_gaps_and_attention_mask_with_hostile_offsets(
    offsets: list[int], width: int, dtype: np.dtype[Any], side: str, max_blocks: int
) -> None:
    lengths = [min(max(b - a, 0), width) for a, b in itertools.pairwise(offsets)]
    case = Case(lengths, np.zeros(0, dtype), np.array(offsets, np.int64), width, side, max_blocks)
    filled = Guarded((len(lengths), width), dtype)
    expected = filled.array.copy()
    reference.fill_gaps(lengths, side, 1, expected)
    emulated.fill_gaps(*case.layout, dtype.itemsize, 1, filled.address, max_blocks)
    assert np.array_equal(filled.array, expected)
    filled.check_margins()
    mask = Guarded((len(lengths), width), dtype)
    reference.attention_mask(lengths, side, expected)
    emulated.attention_mask(*case.layout, dtype.itemsize, 1, mask.address, max_blocks)
    assert np.array_equal(mask.array, expected)
    mask.check_margins()


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_row_longer_than_the_width_is_cut_at_its_end(side: str) -> None:
    values = np.arange(1, 10, dtype=np.int64)
    offsets = np.array([0, 2, 7, 9], np.int64)
    out = Guarded((3, 3), values.dtype)
    emulated.copy_rows(
        address(values), values.size, address(offsets), 3, 0, 3, side == "left", 8, out.address, out.array.size
    )
    emulated.fill_gaps(address(offsets), 3, 3, side == "left", 8, 0, out.address)
    expected = {"right": [[1, 2, 0], [3, 4, 5], [8, 9, 0]], "left": [[0, 1, 2], [3, 4, 5], [0, 8, 9]]}
    assert out.array.tolist() == expected[side]
    out.check_margins()


anywhere = st.integers(INT64.min, INT64.max)
size_of_anything = st.integers(0, INT64.max)


@st.composite
def huge_layouts(draw: st.DrawFn) -> tuple[int, int]:
    """A row and a width whose output has more elements than 32 bits count, and no more than 8-byte addresses do."""
    width = draw(st.integers(1, 2**40))
    return draw(st.integers(2**32 // width, 2**60 // width - 1)), width


@given(anywhere, anywhere, size_of_anything)
def test_source_run_stays_inside(begin: int, end: int, size: int) -> None:
    first, length = emulated.source_run(begin, end, size)
    assert 0 <= first <= first + length <= size
    assert length == cut(begin, end, size)
    if 0 <= begin <= end <= size:
        assert (first, length) == (begin, end - begin)


@given(anywhere, anywhere, size_of_anything)
def test_row_length_is_cut_to_the_width(begin: int, end: int, width: int) -> None:
    assert emulated.row_length(begin, end, width) == min(max(end - begin, 0), width)


@given(huge_layouts(), anywhere, st.booleans())
def test_runs_of_a_padded_row_beyond_32_bits(layout: tuple[int, int], length: int, left: bool) -> None:
    row, width = layout
    kept = min(max(length, 0), width)
    gap = width - kept
    begin = row * width
    assert emulated.padded_run(row, length, width, left) == (begin + gap if left else begin, kept)
    assert emulated.gap_run(row, length, width, left) == (begin if left else begin + kept, gap)


@given(anywhere, size_of_anything, size_of_anything)
def test_flat_run_stays_inside(start: int, length: int, size: int) -> None:
    first, kept = emulated.flat_run(start, length, size)
    assert 0 <= first <= first + kept <= size
    if 0 <= start <= size:
        assert (first, kept) == (start, min(length, size - start))
    else:
        assert kept == 0


@given(st.integers(0, 2**32 - 1), st.integers(1, 1024), st.integers(0, 1023))
def test_thread_number_has_64_bits(block: int, threads: int, thread: int) -> None:
    assert emulated.thread_number(block, threads, thread) == block * threads + thread


@given(st.integers(1, 2**62), st.integers(0, 2**62), st.integers(1, MOST_BLOCKS))
def test_launch_shape_is_one_a_gpu_takes(rows: int, width: int, max_blocks: int) -> None:
    threads_x, threads_y, blocks_x, blocks_y = emulated.launch_shape(rows, width, max_blocks)
    assert threads_x * threads_y == 256
    assert threads_x % 32 == 0
    assert blocks_x >= 1
    assert blocks_y >= 1
    assert blocks_x * blocks_y <= max_blocks
    assert (blocks_x - 1) * threads_y < rows
    assert blocks_y == 1 or (blocks_y - 1) * threads_x < width


@contextlib.contextmanager
def sparse_bytes(size: int) -> Iterator[np.ndarray]:
    """Zeros of which only the pages written to take memory."""
    reserve_nothing = getattr(mmap, "MAP_NORESERVE", 0x4000)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | reserve_nothing)
    # Views of it die with the test: closing is left to the collector.
    yield np.frombuffer(memory, np.uint8)


linux_only = pytest.mark.skipif(not hasattr(mmap, "MAP_ANONYMOUS"), reason="needs anonymous mappings")


@linux_only
def test_copy_rows_beyond_32_bits() -> None:
    size = 2**32 + 100
    with sparse_bytes(size) as values, sparse_bytes(size) as out:
        values[2**32 + 10 : 2**32 + 15] = [1, 2, 3, 4, 5]
        offsets = np.array([2**32 + 10, 2**32 + 13, 2**32 + 15], np.int64)
        starts = np.array([2**32 + 50, 2**31 + 7], np.int64)
        emulated.copy_rows(
            address(values), size, address(offsets), 2, address(starts), 0, False, 1, address(out), size, 64
        )
        assert out[2**32 + 48 : 2**32 + 55].tolist() == [0, 0, 1, 2, 3, 0, 0]
        assert out[2**31 + 5 : 2**31 + 11].tolist() == [0, 0, 4, 5, 0, 0]
        # Wrapped to 32 bits, the starts would be these.
        assert not out[:100].any()


@linux_only
@pytest.mark.parametrize("left", [False, True])
def test_fill_gaps_beyond_32_bits(left: bool) -> None:
    width = 2**31 + 11
    offsets = np.array([0, width, 2 * width - 3], np.int64)
    with sparse_bytes(2 * width) as out:
        emulated.fill_gaps(address(offsets), 2, width, left, 1, 9, address(out), 64)
        gap = width if left else 2 * width - 3
        assert out[gap - 2 : gap + 5].tolist() == ([0, 0, 9, 9, 9, 0, 0] if left else [0, 0, 9, 9, 9])
        assert not out[:100].any()


@pytest.mark.parametrize("item", [1, 2, 4, 8])
def test_nothing_to_do(item: int) -> None:
    """No rows, and null addresses for what has no elements."""
    emulated.copy_rows(0, 0, 0, 0, 0, 0, False, item, 0, 0)
    emulated.fill_gaps(0, 0, 5, False, item, 0, 0)
    emulated.attention_mask(0, 0, 5, True, item, 1, 0)
    offsets = np.zeros(4, np.int64)
    emulated.copy_rows(0, 0, address(offsets), 3, 0, 0, False, item, 0, 0)
    emulated.fill_gaps(address(offsets), 3, 0, True, item, 0, 0)
    emulated.attention_mask(address(offsets), 3, 0, False, item, 1, 0)


GOOD = {"values": 64, "values_size": 4, "offsets": 64, "rows": 2, "start": 0, "width": 3, "left": False}
GOOD |= {"item": 4, "out": 64, "out_size": 6}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"item": 3}, "item must be"),
        ({"item": 0}, "item must be"),
        ({"rows": -1}, "must not be negative"),
        ({"width": -1}, "must not be negative"),
        ({"values_size": -1}, "a size is negative"),
        ({"out_size": -1}, "a size is negative"),
        ({"out_size": 5}, "do not fit"),
        ({"rows": 2**33, "width": 2**33}, "too large"),
        ({"values": 66}, "not a multiple"),
        ({"out": 65}, "not a multiple"),
        ({"offsets": 68}, "not a multiple"),
        ({"start": 4}, "not a multiple"),
        ({"values": 0}, "null"),
        ({"offsets": 0}, "null"),
        ({"out": 0}, "null"),
    ],
)
def test_arguments_no_kernel_can_take(change: dict[str, int], message: str) -> None:
    """Nothing is read or written: the addresses are not real."""
    arguments: dict[str, Any] = GOOD | change
    with pytest.raises(ValueError, match=message):
        emulated.copy_rows(**arguments)
    others: list[tuple[Callable[..., None], str]] = [(emulated.fill_gaps, "value"), (emulated.attention_mask, "one")]
    if not change.keys() & {"values", "values_size", "start", "out_size"}:
        for kernel, bits in others:
            shared = {name: arguments[name] for name in ("offsets", "rows", "width", "left", "item", "out")}
            with pytest.raises(ValueError, match=message):
                kernel(**shared, **{bits: 1})
