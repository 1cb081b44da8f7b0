"""mask_layout and take_tokens for CUDA, compiled as C++, against their oracles; index arithmetic of all kernels."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import oracles
from quadrat import _core
from support.compiled import emulated
from support.emulated import MOST_BLOCKS, address, shifted
from support.hostile import HOSTILE, INT64
from support.masks import indices_within, masks


def check(guarded: Any, mask: Any) -> None:
    rows, width = mask.shape
    indices, bounds, longest = oracles.mask_layout(mask)
    state = guarded("int64", 4 + rows * -(-width // _core.MASK_SEGMENT))
    places, cu_seqlens, lengths = guarded("int64", mask.size), guarded("int32", rows + 1), guarded("int32", rows)
    outs = state, places, cu_seqlens, lengths
    emulated.mask_layout(address(mask), mask.itemsize, rows, width, *(out.address for out in outs))
    assert state.array[:3].tolist() == [len(indices), longest, not set(np.unique(mask)) <= {0, 1}]
    assert places.array[: len(indices)].tolist() == indices
    assert cu_seqlens.holds(bounds)
    assert lengths.holds(np.diff(bounds))
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
    assert length == max(0, min(end, size) - min(max(begin, 0), size))
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


@given(HOSTILE, HOSTILE, HOSTILE, size_of_anything)
def test_token_run_stays_inside(begin: int, end: int, origin: int, size: int) -> None:
    first, length = emulated.token_run(begin, end, origin, size)
    assert 0 <= first <= first + length <= size
    if 0 <= begin - origin <= size:
        assert (first, length) == (begin - origin, min(max(end - begin, 0), size - first))
    else:
        assert length == 0


@given(st.integers(0, 2**32 - 1), st.integers(1, 1024), st.integers(0, 1023))
def test_thread_number_has_64_bits(block: int, threads: int, thread: int) -> None:
    assert emulated.thread_number(block, threads, thread) == block * threads + thread


@given(st.integers(0, 2**62), st.integers(1, 2**62))
def test_quotient(dividend: int, divisor: int) -> None:
    assert emulated.quotient(dividend, divisor) == dividend // divisor


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


@given(st.integers(1, 2**40), st.integers(0, 2**50), st.integers(0, 2**50))
def test_pieces_cover_a_row(rows: int, bytes_: int, typical: int) -> None:
    rows = min(rows, 2**60 // max(bytes_, 1) + 1)
    per_row, blocks, lanes_log, bytes_log = emulated.pieces_of(rows, bytes_, min(typical, bytes_), rows * bytes_)
    assert 1 <= lanes_log <= 5
    assert (1 << bytes_log) >= 16 << lanes_log
    assert per_row << bytes_log >= bytes_ + 15
    assert blocks * (256 >> lanes_log) >= rows * per_row
    assert (blocks - 1) * (256 >> lanes_log) < rows * per_row


addresses = st.integers(2**46, 2**47).map(lambda number: number * 8)


@given(
    addresses, addresses, st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**40), st.integers(4, 13),
    st.integers(0, 2**36), st.integers(0, 40), st.integers(0, 40),
)  # fmt: skip
def test_words_of_a_piece_lie_inside_it(  # noqa: PLR0917
    out: int, source: int, head: int, length: int, tail: int, log: int, number: int, low: int, high: int
) -> None:
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
    head_words, data_words, tail_words = words[:2], words[2:4], words[4:]
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
