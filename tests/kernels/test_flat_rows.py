"""Positions, numbers, boundaries and documents of the rows of a flat batch, compiled, against their oracles."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core
from support.compiled import host

LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([63, 64, 65, 257]), max_size=8)
MOST = 2**63 - 1


def write_position_ids(lengths, start, out, size=None):
    lengths, size = np.array(lengths, np.int64), out.array.size if size is None else size
    return host.position_ids((lengths.ctypes.data, len(lengths)), start, out.address, size)


@given(lengths=LENGTHS, extra=st.integers(0, 70), start=st.integers(-9, 9) | st.sampled_from([-(2**63), 2**62]))
def test_position_ids_as_the_oracle(guarded, *, lengths, extra, start):
    total = sum(lengths) + (extra if any(lengths) else 0)
    out, expected = guarded("int64", (total,)), np.empty(total, np.int64)
    oracles.position_ids(lengths, start, expected)
    assert write_position_ids(lengths, start, out) is None
    assert out.holds(expected)


def test_counts_to_the_last_int64(guarded):
    out = guarded("int64", (3,))
    assert write_position_ids([1, 2], MOST - 1, out) is None
    assert out.array.tolist() == [MOST - 1, MOST - 1, MOST]
    assert write_position_ids([1, 2], MOST, out) == (_core.CODES.OUT_OF_RANGE, 1, -1)
    assert write_position_ids([2], MOST - 1, out) == (_core.CODES.OUT_OF_RANGE, 0, -1)  # the padding counts too


LONG_LENGTHS = st.lists(st.integers(0, 2**20), max_size=30)


def write_cu_seqlens(lengths, out):
    lengths = np.array(lengths, np.int64)
    return host.cu_seqlens((lengths.ctypes.data, len(lengths)), out.address)


@given(LONG_LENGTHS)
def test_cu_seqlens_as_the_oracle(guarded, lengths):
    out, expected = guarded("int32", (len(lengths) + 1,)), np.empty(len(lengths) + 1, np.int32)
    oracles.cu_seqlens(lengths, expected)
    assert write_cu_seqlens(lengths, out) is None
    assert out.holds(expected)


def test_refuses_a_total_beyond_int32(guarded):
    most, out = 2**31 - 1, guarded("int32", (4,))
    assert write_cu_seqlens([1, most - 1, 0], out) is None
    assert out.array.tolist() == [0, 1, most, most]
    assert write_cu_seqlens([1, most - 1, 1], out) == (_core.CODES.OUT_OF_RANGE, 2, -1)
    assert write_cu_seqlens([most, most, 1], out) == (_core.CODES.OUT_OF_RANGE, 1, -1)
    assert write_cu_seqlens([1, -1, 1], out) == (_core.CODES.OUT_OF_RANGE, 1, -1)
    assert out.intact()


@given(lengths=LENGTHS.filter(any), data=st.data())
def test_an_output_below_the_total(guarded, *, lengths, data):
    out = guarded("int64", (data.draw(st.integers(0, sum(lengths) - 1)),))
    row = next(i for i in range(len(lengths)) if sum(lengths[: i + 1]) > out.array.size)
    assert write_position_ids(lengths, 0, out) == (_core.CODES.ROW_TOO_LONG, row, -1)
    assert out.intact()


@pytest.mark.parametrize(
    ("lengths", "size", "failure"),
    [
        ([-1], 3, (_core.CODES.ROW_TOO_LONG, 0, -1)),
        ([1, -(2**63), 1], 3, (_core.CODES.ROW_TOO_LONG, 1, -1)),
        ([1], -1, (_core.CODES.BAD_ARGUMENT, -1, -1)),
        *((none, 3, (_core.CODES.BAD_ARGUMENT, -1, -1)) for none in ([], [0], [0, 0])),  # padding after no token
    ],
)
def test_position_ids_refuses(guarded, lengths, size, failure):
    out = guarded("int64", (3,))
    assert write_position_ids(lengths, 0, out, size) == failure
    assert out.intact()


ROWS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20) | st.sampled_from([63, 64, 65])), max_size=8)


def write_seq_idx(start, lengths, numbers, out, size):
    start, lengths = np.array(start, np.int64), np.array(lengths, np.int64)
    where = (start.ctypes.data, len(start)), lengths.ctypes.data
    return host.seq_idx(*where, *numbers, out.array.dtype == np.int64, out.address, size)


@pytest.mark.parametrize("kind", ["int32", "int64"])
@given(rows=ROWS, rest=st.integers(0, 9), numbers=st.tuples(st.integers(-1, 1), st.integers(-1, 1)))
def test_seq_idx_as_the_oracle(guarded, kind, *, rows, rest, numbers):
    lengths = [length for length, _ in rows]
    start = [sum(length + gap for length, gap in rows[:row]) for row in range(len(rows))]
    total = sum(length + gap for length, gap in rows) + rest
    out, expected = guarded(kind, (total,)), np.empty(total, kind)
    oracles.seq_idx(lengths, expected, start, *numbers)
    assert write_seq_idx(start, lengths, numbers, out, total) is None
    assert out.holds(expected)


@pytest.mark.parametrize(
    ("start", "lengths", "size", "failure"),
    [
        ([0], [1], -1, (_core.CODES.BAD_ARGUMENT, -1, -1)),
        ([-1], [1], 4, (_core.CODES.BAD_START, 0, -1)),
        ([5], [0], 4, (_core.CODES.BAD_START, 0, -1)),
        ([0, 1], [2, 1], 4, (_core.CODES.BAD_START, 1, -1)),
        ([0], [5], 4, (_core.CODES.ROW_TOO_LONG, 0, -1)),
        ([0], [-1], 4, (_core.CODES.ROW_TOO_LONG, 0, -1)),
        ([0], [-(2**63)], 4, (_core.CODES.ROW_TOO_LONG, 0, -1)),
    ],
)
def test_seq_idx_refuses(guarded, start, lengths, size, failure):
    out = guarded("int64", (4,))
    assert write_seq_idx(start, lengths, (1, 0), out, size) == failure
    assert out.intact()


HOSTILE = st.integers(-3, 12) | st.sampled_from([2**31, 2**62, -(2**63), 2**63 - 1])


def check(offsets, size):
    return _core.check_offsets(np.array(offsets, np.int64), size)


RISING = st.lists(st.integers(0, 3), max_size=40).map(lambda lengths: np.cumsum([2, *lengths]).tolist())


@given(st.lists(HOSTILE, min_size=1, max_size=6) | RISING, HOSTILE | st.integers(0, 130))
def test_check_offsets_as_the_oracle(offsets, size):
    row, longest, length = oracles.check_offsets(offsets, size)
    assert check(offsets, size) == (None if row is None else (_core.CODES.BAD_START, row, -1), longest, length)


def test_wants_offsets():
    assert check([], 5) == ((_core.CODES.BAD_ARGUMENT, -1, -1), 0, 0)
