"""pad_columns, flatten_columns and unpad for CUDA, compiled as C++, against the twins of what they do at once."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quadrat import reference

emulated = pytest.importorskip("quadrat._emulated", reason="needs a build with QUADRAT_EMULATE=ON")

INT64 = np.iinfo(np.int64)
MOST_BLOCKS = 65535
COPIED, SEPARATED, POSITIONS, SEQUENCES, BOUNDS = range(5)

# Around words of 16 bytes, and of several of them for each of a group of threads.
LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([63, 64, 65, 127, 128, 129, 257, 513, 700]), max_size=8)
KINDS = st.sampled_from(["bool", "uint8", "int16", "float16", "int32", "float32", "int64", "uint64", "float64"])
SIDES = st.sampled_from(["right", "left"])
BLOCKS = st.sampled_from([1, 2, 3, 7, MOST_BLOCKS])  # few: short pieces, of which a row has several
INNER = st.sampled_from([1, 1, 1, 2, 3, 5, 8, 33])
BITS = st.integers(0, 2**64 - 1)
HOSTILE = (
    st.integers(-3, 40)
    | st.sampled_from([INT64.min, INT64.min + 1, INT64.max - 1, INT64.max, 2**32 + 5, -(2**40)])
    | st.integers(INT64.min, INT64.max)
)


def address(array):
    return array.ctypes.data


def shifted(array, by):
    """A copy that begins `by` elements after a word of 16 bytes."""
    item = array.dtype.itemsize
    raw = np.zeros(array.nbytes + 64 + by * item, np.uint8)
    first = -raw.ctypes.data % 16 + by * item
    copy = raw[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def moved(guard, by):
    """The output of a guard that had `by` elements too many: those at the front stay out."""
    return guard.array.reshape(-1)[by:], guard.address + by * guard.array.itemsize


@st.composite
def columns_of(draw, rows):
    """A column for pad_columns: the arguments, what it must give, what it gave, and what must outlive the call."""
    unsigned = f"u{np.dtype(draw(KINDS)).itemsize}"
    item, inner, side = np.dtype(unsigned).itemsize, draw(INNER), draw(SIDES)
    lengths = draw(st.lists(LENGTHS.flatmap(lambda some: st.sampled_from(some or [0])), min_size=rows, max_size=rows))
    offsets = draw(st.integers(0, 5)) + np.cumsum([0, *lengths], dtype=np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = int(offsets[-1]) + draw(st.integers(0, 3))
    top = 2 ** (8 * item) - 1
    values = shifted(rng.integers(0, top, (size, inner), unsigned, endpoint=True), draw(st.integers(0, 15)))
    value, fill, mask = draw(BITS) & top, draw(BITS) & top, draw(st.booleans())
    width = max(lengths, default=0) + draw(st.integers(0, 40) | st.just(300))
    shown = np.full_like(values, value) if mask else values
    return {
        "values": values, "offsets": offsets, "lengths": lengths, "width": width, "inner": inner, "side": side,
        "item": item, "value": value, "fill": fill, "mask": mask, "shown": shown, "by": draw(st.integers(0, 15)),
    }  # fmt: skip


def expected_of(column):
    rows, width, inner = len(column["lengths"]), column["width"], column["inner"]
    out = np.zeros((rows, width * inner), column["values"].dtype)
    lengths = [length * inner for length in column["lengths"]]
    bounds = itertools.pairwise(column["offsets"])
    starts = [i * width * inner + (width * inner - length if column["side"] == "left" else 0)
              for i, length in enumerate(lengths)]  # fmt: skip
    reference.copy_rows([column["shown"][a:b].reshape(-1) for a, b in bounds], starts, out.reshape(-1))
    reference.fill_gaps(lengths, column["side"], column["fill"], out)
    return out.reshape(-1)


@given(st.data(), st.integers(0, 7), BLOCKS)
def test_pad_columns(guarded, data, rows, blocks):
    columns = data.draw(st.lists(columns_of(rows), max_size=4))
    outs, arguments = [], []
    for column in columns:
        size = rows * column["width"] * column["inner"]
        outs.append(guarded(column["values"].dtype, size + column["by"]))
        arguments.append((
            0 if column["mask"] else address(column["values"]), 0 if column["mask"] else len(column["values"]),
            address(column["offsets"]), column["width"], column["side"] == "left", column["item"], column["inner"],
            column["value"], column["fill"], moved(outs[-1], column["by"])[1],
        ))  # fmt: skip
    emulated.pad_columns(arguments, rows, blocks)
    for column, out in zip(columns, outs, strict=True):
        assert np.array_equal(moved(out, column["by"])[0], expected_of(column))
        assert bool((out.bytes[: column["by"] * column["item"]] == 0xA5).all())
        assert out.intact()


@given(KINDS, LENGTHS, st.integers(0, 5), st.integers(0, 9), st.integers(0, 300), INNER, SIDES, BLOCKS, st.data())
def test_unpad(guarded, kind, lengths, before, after, extra, inner, side, blocks, data):  # noqa: PLR0917
    unsigned = f"u{np.dtype(kind).itemsize}"
    width = max(max(lengths, default=0) + data.draw(st.sampled_from([-30, -1, 0, 1, extra])), 0)
    offsets = before + np.cumsum([0, *lengths], dtype=np.int64)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    padded = rng.integers(0, 2 ** (8 * np.dtype(kind).itemsize) - 1, (len(lengths), width, inner), unsigned)
    padded, by = shifted(padded, data.draw(st.integers(0, 15))), data.draw(st.integers(0, 15))
    size = int(offsets[-1]) + after if lengths else 0
    out, expected = guarded(unsigned, size * inner + by), np.empty((size, inner), unsigned)
    reference.unpad(padded, offsets, side, expected)
    result, place = moved(out, by)
    emulated.unpad(
        address(padded), address(offsets), len(lengths), width, side == "left", padded.itemsize, inner, place, size,
        blocks,
    )  # fmt: skip
    assert np.array_equal(result.reshape(size, inner), expected)
    assert bool((out.bytes[: by * padded.itemsize] == 0xA5).all())
    assert out.intact()


@given(
    st.lists(HOSTILE, min_size=1, max_size=8), st.integers(0, 40), st.integers(0, 40), st.sampled_from([1, 2, 4, 8]),
    SIDES, BLOCKS,
)  # fmt: skip
def test_hostile_offsets_change_nothing_outside(guarded, offsets, size, width, item, side, blocks):  # noqa: PLR0917
    source, rows, left = np.array(offsets, np.int64), len(offsets) - 1, side == "left"
    values = np.full(size, 0x5A, np.uint8).repeat(item)
    out = guarded(f"u{item}", (rows, width))
    column = (address(values), size, address(source), width, left, item, 1, 0, 0, out.address)
    emulated.pad_columns([column], rows, blocks)
    assert out.intact()
    # Every element is written, and what is not padding comes from the values.
    assert set(out.bytes.tolist()) <= {0, 0x5A}
    flat = guarded(f"u{item}", (size if rows else 0,))
    padded = np.full(rows * width * item, 0x5A, np.uint8)
    emulated.unpad(address(padded), address(source), rows, width, left, item, 1, flat.address, flat.array.size, blocks)
    assert flat.intact()
    assert set(flat.bytes.tolist()) <= {0, 0x5A, 0xA5}
    flat = guarded(f"u{item}", (size if rows else 0,))
    kept = [(COPIED, address(values), size, 1, item, 0, 0, flat.address)]
    kept.append((SEPARATED, *kept[0][1:7], flat.address))
    for one in kept:
        emulated.flatten_columns([one], address(source), rows, flat.array.size, blocks)
        assert flat.intact()
        assert set(flat.bytes.tolist()) <= {0, 0x5A, 0xA5}


@given(KINDS, LENGTHS.filter(any), st.integers(0, 5), st.integers(0, 300), INNER, BLOCKS, st.data())
def test_flatten_columns(guarded, kind, lengths, before, extra, inner, blocks, data):  # noqa: PLR0917
    unsigned = f"u{np.dtype(kind).itemsize}"
    top = 2 ** (8 * np.dtype(kind).itemsize) - 1
    offsets = before + np.cumsum([0, *lengths], dtype=np.int64)
    size, first, fill = sum(lengths) + extra, data.draw(st.integers(-5, 5)), data.draw(BITS) & top
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    values = shifted(
        rng.integers(0, top, (int(offsets[-1]) + 2, inner), unsigned, endpoint=True), data.draw(st.integers(0, 15))
    )
    rows = [values[a:b].reshape(-1) for a, b in itertools.pairwise(offsets)]
    starts = [int(offset - before) * inner for offset in offsets[:-1]]
    copied = np.full(size * inner, fill, unsigned)
    reference.copy_rows(rows, starts, copied)
    separated = copied.reshape(size, inner).copy()
    reference.separate_rows(
        [start // inner for start, row in zip(starts, rows, strict=True) if len(row)], fill, separated
    )
    expected = {
        COPIED: copied, SEPARATED: separated.reshape(-1), POSITIONS: np.empty(size, np.int64),
        SEQUENCES: np.empty(size, np.int32), BOUNDS: np.empty(len(lengths) + 1, np.int64),
    }  # fmt: skip
    reference.position_ids(lengths, first, expected[POSITIONS])
    reference.seq_idx(lengths, expected[SEQUENCES])
    reference.cu_seqlens(lengths, expected[BOUNDS])
    outs, columns = {}, []
    for source, array in expected.items():
        outs[source] = guarded(array.dtype, array.size)
        number = first % 2**64 if source == POSITIONS else 0
        rest = fill if source <= SEPARATED else 2**64 - 1
        place = (address(values), len(values), inner) if source <= SEPARATED else (0, 0, 1)
        columns.append((source, *place, array.itemsize, number, rest, outs[source].address))
    emulated.flatten_columns(columns, address(offsets), len(lengths), size, blocks)
    for source, array in expected.items():
        assert np.array_equal(outs[source].array, array), source
        assert outs[source].intact()


def test_no_rows(guarded):
    """Nothing is read, and nothing written but where the last row ends."""
    bound, offsets = guarded("int32", (1,)), np.array([7], np.int64)
    emulated.flatten_columns([(BOUNDS, 0, 0, 1, 4, 0, 0, bound.address)], address(offsets), 0, 0)
    assert bound.array.tolist() == [0]
    emulated.pad_columns([], 3)
    emulated.pad_columns([(0, 0, 0, 5, False, 8, 1, 1, 0, 0)], 0)
    emulated.unpad(0, address(offsets), 0, 5, False, 8, 1, 0, 0)


ADDRESSES = st.integers(2**46, 2**47).map(lambda number: number * 8)


@given(
    ADDRESSES, ADDRESSES, st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**40), st.integers(4, 13),
    st.integers(0, 2**36), st.integers(0, 40), st.integers(0, 40),
)  # fmt: skip
def test_words_of_a_piece_lie_inside_it(out, source, head, length, tail, log, number, low, high):  # noqa: PLR0917
    """Of rows that no memory holds: words are aligned, cover no byte twice, and read only what may be read."""
    data, data_end = out + head, out + head + length
    end, distance, bytes_ = data_end + tail, number << log, 1 << log
    bounds = source - low, source + length + high
    piece, words = emulated.words_of(out, end, data, data_end, source, *bounds, distance, bytes_)
    to, start, begin, stop, data_begin, data_stop = piece
    assert to % 16 == 0
    assert to == out - out % 16 + distance
    clamped = [min(max(place - to, 0), bytes_) for place in (out, end, data, data_end)]
    assert [begin, stop] == clamped[:2]
    assert begin <= data_begin <= data_stop <= stop
    assert [data_begin, data_stop] == [min(max(place, begin), stop) for place in clamped[2:]]
    head_words, data_words, tail_words = itertools.batched(words, 2) if hasattr(itertools, "batched") else (
        words[:2], words[2:4], words[4:]
    )  # fmt: skip
    assert begin <= head_words[0] <= head_words[1] <= data_begin <= data_words[0] <= data_words[1] <= data_stop
    assert data_words[1] <= tail_words[0] <= tail_words[1] <= stop
    for first, last in (head_words, data_words, tail_words):
        if first < last:
            assert first % 16 == last % 16 == 0
    if data_words[0] < data_words[1]:
        shift = start % 16
        assert (start + data_words[0]) - (to + data_words[0]) == source - data
        assert start - shift + data_words[0] >= bounds[0]
        assert start - shift + data_words[1] + (16 if shift else 0) <= bounds[1]
    # No more is left to elements than the ends of words, and what neighbours them.
    left = (stop - begin) - sum(last - first for first, last in (head_words, data_words, tail_words))
    assert left <= 6 * 16


@given(st.integers(1, 2**40), st.integers(0, 2**50), st.integers(0, 2**50))
def test_pieces_cover_a_row(rows, bytes_, typical):
    rows = min(rows, 2**60 // max(bytes_, 1) + 1)
    per_row, blocks, lanes_log, bytes_log = emulated.pieces_of(rows, bytes_, min(typical, bytes_), rows * bytes_)
    assert 1 <= lanes_log <= 5
    assert (1 << bytes_log) >= 16 << lanes_log
    assert per_row << bytes_log >= bytes_ + 15
    assert blocks * (256 >> lanes_log) >= rows * per_row
    assert (blocks - 1) * (256 >> lanes_log) < rows * per_row


@given(st.integers(0, 2**62), st.integers(1, 2**62))
def test_quotient(dividend, divisor):
    assert emulated.quotient(dividend, divisor) == dividend // divisor


GOOD = (64, 4, 64, 3, False, 4, 1, 0, 0, 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({5: 3}, "item must be"),
        ({3: -1}, "must not be negative"),
        ({1: -1}, "a size is negative"),
        ({6: -1}, "inner must not be negative"),
        ({3: 2**62}, "too large"),
        ({1: 2**40, 6: 2**40}, "too large"),
        ({0: 66}, "not a multiple"),
        ({9: 65}, "not a multiple"),
        ({2: 68}, "not a multiple"),
        ({0: 0}, "null"),
        ({2: 0}, "null"),
        ({9: 0}, "null"),
    ],
)
def test_columns_no_kernel_can_take(change, message):
    """Nothing is read or written: the addresses are not real."""
    column = tuple(change.get(i, number) for i, number in enumerate(GOOD))
    with pytest.raises(ValueError, match=message):
        emulated.pad_columns([column], 2)


def test_a_launch_takes_no_more_columns():
    with pytest.raises(ValueError, match="16 columns"):
        emulated.pad_columns([GOOD] * 17, 2)
    with pytest.raises(ValueError, match="16 columns"):
        emulated.flatten_columns([(COPIED, 64, 4, 1, 4, 0, 0, 64)] * 17, 64, 2, 4)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ((5, 64, 4, 1, 8, 0, 0, 64), "no such source"),
        ((POSITIONS, 0, 0, 1, 4, 0, 0, 64), "8 bytes"),
        ((SEQUENCES, 0, 0, 1, 8, 0, 0, 64), "4 bytes"),
        ((BOUNDS, 0, 0, 1, 2, 0, 0, 64), "4 or 8 bytes"),
        ((POSITIONS, 0, 0, 2, 8, 0, 0, 64), "inner must be 1"),
        ((COPIED, 0, 4, 1, 4, 0, 0, 64), "null"),
        ((COPIED, 64, 4, 1, 4, 0, 0, 66), "not a multiple"),
    ],
)
def test_flat_columns_no_kernel_can_take(column, message):
    with pytest.raises(ValueError, match=message):
        emulated.flatten_columns([column], 64, 2, 4)


@given(LENGTHS, st.integers(0, 5), st.integers(0, 40), SIDES, BLOCKS, st.booleans(), BITS, st.floats(0, 1))
def test_pad_masked(guarded, lengths, before, extra, side, blocks, with_mask, seed, probability):  # noqa: PLR0917
    """What the kernels do one after the other."""
    offsets = before + np.cumsum([0, *lengths], dtype=np.int64)
    rows, width, left, fill = len(lengths), max(lengths, default=0) + extra, side == "left", 17
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 300, int(offsets[-1]) + 2)
    keys, members = rng.integers(0, 2**64 - 1, rows, np.uint64), rng.integers(0, 2**64 - 1, 3, np.uint64)
    how = (seed, 3, probability, 0.5, 0.3, 11, 250)
    expected = [guarded("int64", rows * width) for _ in range(3)]
    column = (address(values), len(values), address(offsets), width, left, 8, 1, 1, fill, expected[0].address)
    emulated.pad_columns([column, (0, 0, *column[2:8], 0, expected[2].address)], rows)
    masked = (*how, address(keys), address(offsets), rows, width, left, False, 0, address(members), 3)
    emulated.philox_mask(*masked, expected[0].address, expected[1].address, rows * width)
    outs = [guarded("int64", rows * width) for _ in range(3)]
    places = [out.address for out in outs[: 2 + with_mask]] + [0] * (not with_mask)
    source = (address(keys), address(values), len(values), address(offsets), rows, width, left, address(members), 3)
    emulated.pad_masked(*how, *source, fill, *places, blocks)
    for out, other in list(zip(outs, expected, strict=True))[: 2 + with_mask]:
        assert np.array_equal(out.array, other.array)
    assert all(out.intact() for out in outs)
    assert with_mask or outs[2].untouched()


@given(st.lists(HOSTILE, min_size=1, max_size=8), st.integers(0, 40), st.integers(0, 40), SIDES, BLOCKS)
def test_pad_masked_with_hostile_offsets(guarded, offsets, size, width, side, blocks):  # noqa: PLR0917
    source, rows = np.array(offsets, np.int64), len(offsets) - 1
    values, keys = np.full(size, 5), np.zeros(rows, np.uint64)
    outs = [guarded("int64", rows * width) for _ in range(3)]
    emulated.pad_masked(
        0, 0, 0.5, 0.5, 0.5, 5, 1, address(keys), address(values), size, address(source), rows, width, side == "left",
        0, 0, 7, *(out.address for out in outs), blocks,
    )  # fmt: skip
    assert all(out.intact() for out in outs)
    assert set(outs[0].array.tolist()) <= {0, 5, 7}
