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


def write_position_ids(lengths, start, out):
    lengths = np.array(lengths, np.int64)
    return _core.position_ids(lengths.ctypes.data, len(lengths), start, out.address, out.array.size)


@given(lengths=LENGTHS, extra=st.integers(0, 70), start=st.integers(-9, 9) | st.sampled_from([-(2**63), 2**62]))
def test_position_ids_as_the_oracle(guarded, *, lengths, extra, start):
    total = sum(lengths) + (extra if any(lengths) else 0)
    out, expected = guarded("int64", (total,)), np.empty(total, np.int64)
    oracles.position_ids(lengths, start, expected)
    assert write_position_ids(lengths, start, out) is None
    assert out.holds(expected)


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_refuses_padding_after_no_token(guarded, lengths):
    out = guarded("int64", (3,))
    assert write_position_ids(lengths, 0, out) == (_core.CODE_BAD_ARGUMENT, -1, -1)
    assert out.untouched()


def test_counts_to_the_last_int64(guarded):
    out = guarded("int64", (3,))
    assert write_position_ids([1, 2], MOST - 1, out) is None
    assert out.array.tolist() == [MOST - 1, MOST - 1, MOST]
    assert write_position_ids([1, 2], MOST, out) == (_core.CODE_OUT_OF_RANGE, 1, -1)
    assert write_position_ids([2], MOST - 1, out) == (_core.CODE_OUT_OF_RANGE, 0, -1)  # the padding counts too


@given(lengths=LENGTHS, extra=st.integers(0, 70))
def test_seq_idx_as_the_oracle(guarded, *, lengths, extra):
    total = sum(lengths) + extra
    out, expected, sizes = guarded("int32", (total,)), np.empty(total, np.int32), np.array(lengths, np.int64)
    oracles.seq_idx(lengths, expected)
    assert _core.seq_idx(sizes.ctypes.data, len(sizes), out.address, total) is None
    assert out.holds(expected)


KINDS = _core.kinds
LONG_LENGTHS = st.lists(st.integers(0, 2**20), max_size=30)


def write_cu_seqlens(lengths, kind, out):
    lengths = np.array(lengths, np.int64)
    return _core.cu_seqlens(lengths.ctypes.data, len(lengths), KINDS.index(kind), out.address)


@pytest.mark.parametrize("kind", ["int32", "int64"])
@given(lengths=LONG_LENGTHS)
def test_cu_seqlens_as_the_oracle(guarded, kind, *, lengths):
    out, expected = guarded(kind, (len(lengths) + 1,)), np.empty(len(lengths) + 1, kind)
    oracles.cu_seqlens(lengths, expected)
    assert write_cu_seqlens(lengths, kind, out) is None
    assert out.holds(expected)


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_refuses_a_total_beyond_its_kind(guarded, kind):
    most = np.iinfo(kind).max
    out = guarded(kind, (4,))
    assert write_cu_seqlens([1, most - 1, 0], kind, out) is None
    assert out.array.tolist() == [0, 1, most, most]
    assert write_cu_seqlens([1, most - 1, 1], kind, out) == (_core.CODE_OUT_OF_RANGE, 2, -1)
    assert write_cu_seqlens([most, most, 1], kind, out) == (_core.CODE_OUT_OF_RANGE, 1, -1)
    assert write_cu_seqlens([1, -1, 1], kind, out) == (_core.CODE_OUT_OF_RANGE, 1, -1)
    assert out.intact()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("int32", "int64")])
def test_knows_two_kinds(guarded, kind):
    out = guarded(kind, (2,))
    assert write_cu_seqlens([1], kind, out) == (_core.CODE_BAD_ARGUMENT, -1, -1)
    assert out.untouched()


def position_ids(lengths, rows, out, size):
    return _core.position_ids(lengths, rows, 0, out, size)


kernels = pytest.mark.parametrize(("kernel", "kind"), [(position_ids, "int64"), (_core.seq_idx, "int32")])


def write_refused_lengths(kernel, lengths, out, size=None):
    lengths = np.array(lengths, np.int64)
    return kernel(lengths.ctypes.data, len(lengths), out.address, out.array.size if size is None else size)


@kernels
@given(lengths=LENGTHS.filter(any), data=st.data())
def test_an_output_below_the_total(guarded, kernel, kind, *, lengths, data):
    out = guarded(kind, (data.draw(st.integers(0, sum(lengths) - 1)),))
    row = next(i for i in range(len(lengths)) if sum(lengths[: i + 1]) > out.array.size)
    assert write_refused_lengths(kernel, lengths, out) == (_core.CODE_ROW_TOO_LONG, row, -1)
    assert out.intact()


@kernels
@pytest.mark.parametrize(("lengths", "row"), [([-1], 0), ([1, -(2**63), 1], 1)])
def test_negative_lengths(guarded, kernel, kind, lengths, row):
    out = guarded(kind, (3,))
    assert write_refused_lengths(kernel, lengths, out) == (_core.CODE_ROW_TOO_LONG, row, -1)
    assert out.intact()


@kernels
def test_negative_sizes(guarded, kernel, kind):
    out = guarded(kind, (1,))
    assert write_refused_lengths(kernel, [1], out, -1) == (_core.CODE_BAD_ARGUMENT, -1, -1)
    with pytest.raises(ValueError, match="negative"):
        kernel(0, -1, out.address, 1)
    assert out.untouched()


ROWS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20) | st.sampled_from([63, 64, 65])), max_size=8)


def write_document_ids(start, lengths, out, size):
    start, lengths = np.array(start, np.int64), np.array(lengths, np.int64)
    return host.document_ids(start.ctypes.data, lengths.ctypes.data, len(lengths), out.address, size)


@given(rows=ROWS, rest=st.integers(0, 9))
def test_document_ids_as_the_oracle(guarded, *, rows, rest):
    lengths = [length for length, _ in rows]
    start = [sum(length + gap for length, gap in rows[:row]) for row in range(len(rows))]
    total = sum(length + gap for length, gap in rows) + rest
    out, expected = guarded("int64", (total,)), np.empty(total, np.int64)
    oracles.document_ids(start, lengths, expected)
    assert write_document_ids(start, lengths, out, total) is None
    assert out.holds(expected)


@pytest.mark.parametrize(
    ("start", "lengths", "size", "failure"),
    [
        ([0], [1], -1, (_core.CODE_BAD_ARGUMENT, -1, -1)),
        ([-1], [1], 4, (_core.CODE_BAD_START, 0, -1)),
        ([5], [0], 4, (_core.CODE_BAD_START, 0, -1)),
        ([0], [5], 4, (_core.CODE_ROW_TOO_LONG, 0, -1)),
        ([0], [-1], 4, (_core.CODE_ROW_TOO_LONG, 0, -1)),
    ],
)
def test_document_ids_refuses(guarded, start, lengths, size, failure):
    out = guarded("int64", (4,))
    assert write_document_ids(start, lengths, out, size) == failure
    assert out.untouched()


SHORT_LENGTHS = st.lists(st.integers(0, 12) | st.sampled_from([16, 17, 33]), max_size=6)
REACH = st.sampled_from([0, 1, 2, 7, 100, 2**63 - 1])
SIZE = st.sampled_from([1, 2, 3, 8, 16, 40])


def write_document_blocks(offsets, total, reach, size, outs):
    offsets = np.array(offsets, np.int64)
    return _core.document_blocks(
        offsets.ctypes.data, len(offsets), total, *reach, *size, *(out.address for out in outs)
    )


@given(lengths=SHORT_LENGTHS, extra=st.integers(0, 20), reach=st.tuples(REACH, REACH), size=st.tuples(SIZE, SIZE))
def test_document_blocks_as_the_oracle(guarded, *, lengths, extra, reach, size):
    offsets = [sum(lengths[:row]) for row in range(len(lengths) + 1)]
    total = offsets[-1] + extra
    rows, columns = (-(-total // one) for one in size)
    outs = [guarded("int32", shape) for shape in ((rows,), (rows, columns)) * 2]
    expected = [np.empty_like(out.array) for out in outs]
    oracles.document_blocks(offsets, total, reach, size, expected)
    assert write_document_blocks(offsets, total, reach, size, outs) is None
    for out, right in zip(outs, expected, strict=True):
        assert out.holds(right)


@pytest.mark.parametrize(
    ("offsets", "total", "reach", "size", "failure"),
    [
        ([0, 2], -1, (0, 0), (1, 1), (_core.CODE_BAD_ARGUMENT, -1, -1)),
        ([0, 2], 2, (-1, 0), (1, 1), (_core.CODE_BAD_ARGUMENT, -1, -1)),
        ([0, 2], 2, (0, -1), (1, 1), (_core.CODE_BAD_ARGUMENT, -1, -1)),
        ([0, 2], 2, (0, 0), (0, 1), (_core.CODE_BAD_ARGUMENT, -1, -1)),
        ([0, 2], 2, (0, 0), (1, 0), (_core.CODE_BAD_ARGUMENT, -1, -1)),
        ([0, 2], 2**31, (0, 0), (128, 1), (_core.CODE_BAD_ARGUMENT, -1, -1)),  # block numbers are int32
        ([1, 2], 2, (0, 0), (1, 1), (_core.CODE_BAD_START, 0, -1)),
        ([0, 3], 2, (0, 0), (1, 1), (_core.CODE_BAD_START, 1, -1)),
        ([0, 2, 1], 2, (0, 0), (1, 1), (_core.CODE_BAD_START, 2, -1)),
    ],
)
def test_document_blocks_refuses(guarded, offsets, total, reach, *, size, failure):
    outs = [guarded("int32", (2,)) for _ in range(4)]
    assert write_document_blocks(offsets, total, reach, size, outs) == failure
    assert all(out.untouched() for out in outs)


HOSTILE = st.integers(-3, 12) | st.sampled_from([2**31, 2**62, -(2**63), 2**63 - 1])


def check(offsets, size):
    offsets = np.array(offsets, np.int64)
    return _core.check_offsets(offsets.ctypes.data, len(offsets), size)


@given(st.lists(HOSTILE, min_size=1, max_size=6) | st.lists(HOSTILE, min_size=1, max_size=6).map(sorted), HOSTILE)
def test_check_offsets_as_the_oracle(offsets, size):
    row, longest, length = oracles.check_offsets(offsets, size)
    assert check(offsets, size) == (None if row is None else (_core.CODE_BAD_START, row, -1), longest, length)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 5), st.integers(0, 5))
def test_names_the_first_of_the_longest_rows(lengths, before, after):
    offsets = before + np.cumsum([0, *lengths])
    length = max(lengths, default=0)
    longest = lengths.index(length) if length else 0
    assert check(offsets, int(offsets[-1]) + after) == (None, longest, length)
    assert check(offsets, int(offsets[-1]) - 1)[0] is not None


def test_wants_offsets():
    assert check([], 5) == ((_core.CODE_BAD_ARGUMENT, -1, -1), 0, 0)
