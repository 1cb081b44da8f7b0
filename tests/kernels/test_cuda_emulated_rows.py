"""pad_columns, unpad and flatten_columns for CUDA, compiled as C++, against the oracles and hostile input."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from quadrat import _core
from support.compiled import emulated
from support.emulated import BLOCKS, MOST_BLOCKS, address, shifted, sparse_bytes
from support.hostile import BITS, HOSTILE, INT64, KINDS, LENGTHS, SIDES, cut_lengths, cut_rows, pad_rows

INNER = st.sampled_from([1, 1, 1, 2, 3, 5, 8, 33])


def moved(guard: Any, by: int) -> tuple[np.ndarray, int]:
    """The output of a guard that had `by` elements too many: those at the front stay out."""
    return guard.array.reshape(-1)[by:], guard.address + by * guard.array.itemsize


def marked(lengths: list[int], width: int, side: str, value: int, fill: int, dtype: Any) -> np.ndarray:  # noqa: PLR0917
    """attention_mask, with other numbers than 1 and 0."""
    out = np.empty((len(lengths), width), np.uint8)
    oracles.attention_mask(lengths, side, out)
    return np.where(out == 1, np.array(value, dtype), np.array(fill, dtype))


@dataclass
class Column:
    """A column for pad_columns, and what it becomes."""

    values: np.ndarray
    offsets: np.ndarray
    width: int
    side: str
    value: int
    fill: int
    mask: bool
    by: int  # elements that the output lies behind a word

    @property
    def inner(self) -> int:
        return self.values.shape[1]

    def arguments(self, out: int) -> tuple[Any, ...]:
        source = (0, 0) if self.mask else (address(self.values), len(self.values))
        layout = address(self.offsets), self.width, self.side == "left", self.values.itemsize, self.inner
        return (*source, *layout, self.value, self.fill, out)

    def expected(self) -> np.ndarray:
        dtype, width = self.values.dtype, self.width * self.inner
        bounds = itertools.pairwise(self.offsets)
        if self.mask:
            return marked([int(b - a) * self.inner for a, b in bounds], width, self.side, self.value, self.fill, dtype)
        return pad_rows([self.values[a:b].reshape(-1) for a, b in bounds], width, self.side, self.fill, dtype)


@st.composite
def columns_of(draw: st.DrawFn, rows: int) -> Column:
    unsigned = f"u{np.dtype(draw(KINDS)).itemsize}"
    lengths = draw(st.lists(LENGTHS.flatmap(lambda some: st.sampled_from(some or [0])), min_size=rows, max_size=rows))
    offsets = draw(st.integers(0, 5)) + np.cumsum([0, *lengths], dtype=np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    top = np.iinfo(unsigned).max
    size = int(offsets[-1]) + draw(st.integers(0, 3)), draw(INNER)
    return Column(
        values=shifted(rng.integers(0, top, size, unsigned, endpoint=True), draw(st.integers(0, 15))),
        offsets=offsets,
        width=max(lengths, default=0) + draw(st.integers(0, 40) | st.just(300)),
        side=draw(SIDES),
        value=draw(BITS) & top,
        fill=draw(BITS) & top,
        mask=draw(st.booleans()),
        by=draw(st.integers(0, 15)),
    )


@given(st.data(), st.integers(0, 7), BLOCKS)
def test_pad_columns(guarded: Any, data: Any, rows: int, blocks: int) -> None:
    columns = data.draw(st.lists(columns_of(rows), max_size=4))
    outs = [guarded(column.values.dtype, rows * column.width * column.inner + column.by) for column in columns]
    emulated.pad_columns(
        [column.arguments(moved(out, column.by)[1]) for column, out in zip(columns, outs, strict=True)], rows, blocks
    )
    for column, out in zip(columns, outs, strict=True):
        assert np.array_equal(moved(out, column.by)[0], column.expected().reshape(-1))
        assert bool((out.bytes[: column.by * column.values.itemsize] == 0xA5).all())
        assert out.intact()


@given(
    st.lists(HOSTILE, min_size=1, max_size=8), st.integers(0, 40), st.integers(0, 40), st.sampled_from([1, 2, 4, 8]),
    SIDES, BLOCKS, BITS, st.booleans(),
)  # fmt: skip
def test_pad_columns_with_hostile_offsets(guarded, offsets, size, width, item, side, blocks, bits, mask):  # noqa: PLR0917
    """Rows are cut to what there is of them and to the width; every element is written, and none outside."""
    source, rows, unsigned = np.array(offsets, np.int64), len(offsets) - 1, f"u{item}"
    values, out = guarded(unsigned, (size,)), guarded(unsigned, (rows, width))
    values.array[:] = np.arange(size) + 7
    value, fill = bits & np.iinfo(unsigned).max, ~bits & np.iinfo(unsigned).max
    place = (0, 0) if mask else (values.address, size)
    column = (*place, address(source), width, side == "left", item, 1, value, fill, out.address)
    emulated.pad_columns([column], rows, blocks)
    if mask:
        expected = marked(cut_lengths(offsets, width), width, side, value, fill, unsigned)
    else:
        expected = pad_rows(cut_rows(values.array, offsets, width), width, side, fill, unsigned)
    assert out.holds(expected)
    assert values.intact()


@given(KINDS, LENGTHS, st.integers(0, 5), st.integers(0, 9), st.integers(0, 300), INNER, SIDES, BLOCKS, st.data())
def test_unpad(guarded, kind, lengths, before, after, extra, inner, side, blocks, data):  # noqa: PLR0917
    unsigned = f"u{np.dtype(kind).itemsize}"
    width = max(max(lengths, default=0) + data.draw(st.sampled_from([-30, -1, 0, 1, extra])), 0)
    offsets = before + np.cumsum([0, *lengths], dtype=np.int64)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = rng.integers(0, np.iinfo(unsigned).max, (len(lengths), width, inner), unsigned, endpoint=True)
    rows, by = shifted(rows, data.draw(st.integers(0, 15))), data.draw(st.integers(0, 15))
    size = int(offsets[-1]) + after if lengths else 0
    out, expected = guarded(unsigned, size * inner + by), np.empty((size, inner), unsigned)
    oracles.unpad(rows, offsets, side, expected)
    result, place = moved(out, by)
    emulated.unpad(
        address(rows), address(offsets), len(lengths), width, side == "left", rows.itemsize, inner, place, size, blocks
    )
    assert np.array_equal(result.reshape(size, inner), expected)
    assert bool((out.bytes[: by * rows.itemsize] == 0xA5).all())
    assert out.intact()


@given(
    st.lists(HOSTILE, min_size=1, max_size=8), st.integers(0, 40), st.integers(0, 40), st.sampled_from([1, 2, 4, 8]),
    SIDES, BLOCKS,
)  # fmt: skip
def test_unpad_with_hostile_offsets(guarded, offsets, size, width, item, side, blocks):  # noqa: PLR0917
    """Nothing outside is written, and only what the batch has, or zeros."""
    source, rows = np.array(offsets, np.int64), len(offsets) - 1
    batch, flat = guarded(f"u{item}", (rows, width)), guarded(f"u{item}", (size if rows else 0,))
    batch.bytes[:] = 0x5A
    emulated.unpad(
        batch.address, address(source), rows, width, side == "left", item, 1, flat.address, flat.array.size, blocks
    )
    assert flat.intact()
    assert set(flat.bytes.tolist()) <= {0, 0x5A, 0xA5}


HUGE = 2**31 + 11  # the third of such rows begins where 32 bits end


def blocks_around(place: int) -> tuple[int, int, int]:
    """What runs of a launch only the blocks that write near `place` of `[3, HUGE]` bytes."""
    per_row, _, lanes_log, bytes_log = emulated.pieces_of(3, HUGE, HUGE, 3 * HUGE)
    row, at = divmod(place, HUGE)
    block = (row * per_row + (at >> bytes_log)) // (256 >> lanes_log)
    return MOST_BLOCKS, max(block - 1, 0), block + 2


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("mask", [False, True])
def test_pad_columns_beyond_32_bits(left: bool, mask: bool) -> None:
    offsets = np.array([0, HUGE, 2 * HUGE, 3 * HUGE - 3], np.int64)
    gap = 2 * HUGE if left else 3 * HUGE - 3  # the only one, of 3
    with sparse_bytes(3 * HUGE) as values, sparse_bytes(3 * HUGE) as out:
        source = (0, 0) if mask else (address(values), 3 * HUGE - 3)
        values[[2 * HUGE - 2, 2 * HUGE - 1, 2 * HUGE, 2 * HUGE + 1]] = [5, 6, 7, 8]
        values[[3 * HUGE - 5, 3 * HUGE - 4]] = [3, 4]
        column = (*source, address(offsets), HUGE, left, 1, 1, 1, 9, address(out))
        emulated.pad_columns([column], 3, *blocks_around(gap))
        before, after = ([1, 1], [1, 1]) if mask else ([5, 6], [7, 8]) if left else ([3, 4], [])
        assert out[gap - 2 : gap + 5].tolist() == [*before, 9, 9, 9, *(after if left else [])]
        # Wrapped to 32 bits, places would be these.
        assert not out[:100].any()
        assert not out[gap - 2**22 : gap - 2**21].any(), "other blocks ran"


def test_unpad_beyond_32_bits() -> None:
    offsets, out = np.array([0, 2, 2, 5], np.int64), np.zeros(5, np.uint8)
    with sparse_bytes(3 * HUGE) as batch:
        batch[[HUGE - 2, HUGE - 1]] = [1, 2]
        batch[[3 * HUGE - 3, 3 * HUGE - 2, 3 * HUGE - 1]] = [3, 4, 5]
        emulated.unpad(address(batch), address(offsets), 3, HUGE, True, 1, 1, address(out), 5)
        assert out.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("item", [1, 2, 4, 8])
def test_nothing_to_do(item: int) -> None:
    """No rows, and null addresses for what has no elements."""
    offsets = np.array([7, 7, 7, 7], np.int64)
    emulated.pad_columns([], 3)
    emulated.pad_columns([(0, 0, 0, 5, False, item, 1, 1, 0, 0)], 0)
    emulated.pad_columns([(0, 0, address(offsets), 0, True, item, 1, 1, 0, 0)], 3)
    emulated.pad_columns([(0, 0, address(offsets), 5, True, item, 0, 1, 0, 0)], 3)
    emulated.unpad(0, address(offsets), 0, 5, False, item, 1, 0, 0)
    emulated.unpad(0, address(offsets), 3, 0, False, item, 1, 0, 0)


def test_columns_of_a_sequence_that_makes_them_when_they_are_read(guarded):
    class Columns(Sequence):
        def __len__(self):
            return 1

        def __getitem__(self, at):
            if at:
                raise IndexError
            return (*column[:-1], column[-1])  # a new one each time

    values, offsets, out = np.arange(5), np.array([0, 2, 5]), guarded("int64", (2, 3))
    column = (address(values), 5, address(offsets), 3, False, 8, 1, 0, 2**64 - 7, out.address)
    emulated.pad_columns(Columns(), 2)
    assert out.array.tolist() == [[0, 1, -7], [2, 3, 4]]


COPIED, SEPARATED = _core.FLAT_CONTENTS.VALUES, _core.FLAT_CONTENTS.SEPARATED
POSITIONS, SEQUENCES, BOUNDS = _core.FLAT_CONTENTS.POSITIONS, _core.FLAT_CONTENTS.SEQUENCES, _core.FLAT_CONTENTS.BOUNDS
ORIGINS = st.integers(0, 5) | st.sampled_from([2**31, 2**40])  # the offsets of a slice do not begin at 0
STARTS = st.integers(-5, 5) | st.sampled_from([INT64.min, INT64.max - 10**6])
UNTOUCHED = np.frombuffer(b"\xa5" * 4, np.int32)[0]


def offsets_of(lengths: list[int], origin: int) -> np.ndarray:
    return origin + np.cumsum([0, *lengths], dtype=np.int64)


@given(KINDS, LENGTHS.filter(any), st.integers(0, 5), st.integers(0, 300), BLOCKS, st.data())
def test_flatten_columns(guarded, kind, lengths, before, extra, blocks, data):  # noqa: PLR0917
    unsigned = f"u{np.dtype(kind).itemsize}"
    top, inner = np.iinfo(unsigned).max, data.draw(st.sampled_from([1, 1, 1, 2, 3, 5, 8, 33]))
    offsets, size, fill = offsets_of(lengths, before), sum(lengths) + extra, data.draw(BITS) & top
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    values = rng.integers(0, top, (int(offsets[-1]) + 2, inner), unsigned, endpoint=True)
    values = shifted(values, data.draw(st.integers(0, 15)))
    rows = [values[a:b].reshape(-1) for a, b in itertools.pairwise(offsets)]
    starts = [int(offset - before) * inner for offset in offsets[:-1]]
    copied = np.full(size * inner, fill, unsigned)
    oracles.copy_rows(rows, starts, copied)
    separated = copied.reshape(size, inner).copy()
    oracles.separate_rows(
        [start // inner for start, row in zip(starts, rows, strict=True) if len(row)], fill, separated
    )
    expected = {COPIED: copied, SEPARATED: separated.reshape(-1)}
    outs = {source: guarded(unsigned, size * inner) for source in expected}
    place = address(values), len(values), inner, copied.itemsize, 0, fill
    columns = [(source, *place, out.address) for source, out in outs.items()]
    emulated.flatten_columns(columns, address(offsets), len(lengths), size, blocks)
    for source, array in expected.items():
        assert outs[source].holds(array), source


@given(LENGTHS, ORIGINS, st.integers(0, 300), STARTS, BLOCKS)
def test_flatten_columns_tells_rows_apart(guarded, lengths, origin, extra, first, blocks):  # noqa: PLR0917
    """position_ids, seq_idx and cu_seqlens need no values, and offsets may begin anywhere."""
    offsets, rows = offsets_of(lengths, origin), len(lengths)
    size = sum(lengths) + (extra if rows else 0)
    kinds = {POSITIONS: "int64", SEQUENCES: "int32", BOUNDS: "int32"}
    outs = {source: guarded(kinds[source], rows + 1 if source == BOUNDS else size) for source in kinds}
    expected = {source: np.empty_like(out.array) for source, out in outs.items()}
    if any(lengths):
        oracles.position_ids(lengths, first, expected[POSITIONS])
    else:
        expected[POSITIONS] = outs[POSITIONS].array.copy()  # nothing to count on from
    oracles.seq_idx(lengths, expected[SEQUENCES])
    oracles.cu_seqlens(lengths, expected[BOUNDS])
    columns = [
        (source, 0, 0, 1, out.array.itemsize, first % 2**64, 2**64 - 1, out.address) for source, out in outs.items()
    ]
    emulated.flatten_columns(columns, address(offsets), rows, size, blocks)
    for source, out in outs.items():
        assert out.holds(expected[source]), source


@given(st.lists(HOSTILE, min_size=1, max_size=8), st.integers(0, 40), HOSTILE, st.sampled_from([1, 2, 4, 8]), BLOCKS)
def test_flatten_columns_with_hostile_offsets(guarded, offsets, size, first, item, blocks):  # noqa: PLR0917
    """Nothing outside is written, and only what is among the values; the bounds wrap."""
    source, rows = np.array(offsets, np.int64), len(offsets) - 1
    size = size if rows else 0
    values = guarded(f"u{item}", (size,))
    values.bytes[:] = 0x5A
    for how in (COPIED, SEPARATED):
        flat = guarded(f"u{item}", (size,))
        column = (how, values.address, size, 1, item, 0, 0, flat.address)
        emulated.flatten_columns([column], address(source), rows, size, blocks)
        assert flat.intact()
        assert set(flat.bytes.tolist()) <= {0, 0x5A, 0xA5}
    positions, sequences, bounds = guarded("int64", (size,)), guarded("int32", (size,)), guarded("int32", (rows + 1,))
    columns = [
        (POSITIONS, 0, 0, 1, 8, first % 2**64, 0, positions.address),
        (SEQUENCES, 0, 0, 1, 4, 0, 2**64 - 1, sequences.address),
        (BOUNDS, 0, 0, 1, 4, 0, 0, bounds.address),
    ]
    emulated.flatten_columns(columns, address(source), rows, size, blocks)
    assert all(out.intact() for out in (positions, sequences, bounds, values))
    assert set(sequences.array.tolist()) <= {-1, *range(rows), UNTOUCHED}
    wrapped = source.view(np.uint64) - source.view(np.uint64)[0]
    assert np.array_equal(bounds.array, wrapped.astype(np.uint32).view(np.int32))


def test_flatten_columns_beyond_32_bits() -> None:
    """Values that lie there; what is written there takes a GPU."""
    offsets, out, separated = np.array([2**32 + 10, 2**32 + 13, 2**32 + 15], np.int64), *np.zeros((2, 6), np.uint8)
    with sparse_bytes(2**32 + 20) as values:
        values[2**32 + 10 : 2**32 + 15] = [1, 2, 3, 4, 5]
        place = address(values), len(values), 1, 1, 0, 9
        columns = [(COPIED, *place, address(out)), (SEPARATED, *place, address(separated))]
        emulated.flatten_columns(columns, address(offsets), 2, 6)
    assert out.tolist() == [1, 2, 3, 4, 5, 9]
    assert separated.tolist() == [9, 2, 3, 9, 5, 9]


@pytest.mark.parametrize("item", [1, 2, 4, 8])
def test_no_tokens_and_no_rows(guarded: Any, item: int) -> None:
    """Null addresses for what has no elements; without rows, too, the last one ends somewhere."""
    offsets, bound = np.full(4, 7, np.int64), guarded("int32", (1,))
    columns = [(source, 0, 0, 1, item, 0, 0, 0) for source in (COPIED, SEPARATED)]
    columns += [(POSITIONS, 0, 0, 1, 8, 0, 0, 0), (SEQUENCES, 0, 0, 1, 4, 0, 0, 0)]
    emulated.flatten_columns(columns, address(offsets), 3, 0)
    emulated.flatten_columns([], address(offsets), 0, 0)
    emulated.flatten_columns([(BOUNDS, 0, 0, 1, 4, 0, 0, bound.address)], address(offsets), 0, 0)
    assert bound.array.tolist() == [0]
