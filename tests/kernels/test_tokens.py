"""Labels, words, and marks of special tokens and of the ends of rows, compiled, against their oracles."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core
from support.compiled import host
from support.hostile import bit_set

LABELLED_IDS = st.integers(-3, 6) | st.integers(-(2**63), 2**63 - 1)
PAD_IDS = st.integers(-101, -99) | LABELLED_IDS


@given(st.lists(LABELLED_IDS, max_size=70), PAD_IDS)
def test_labels_as_the_oracle(guarded, ids, pad_id):
    source, out, expected = guarded("int64", len(ids)), guarded("int64", len(ids)), np.empty(len(ids), np.int64)
    source.array[:] = ids
    oracles.causal_labels(source.array, pad_id, expected)
    host.causal_labels(source.address, len(ids), pad_id, out.address)
    assert out.holds(expected)
    assert source.holds(ids)


SPECIAL = st.sets(st.integers(0, 200) | st.sampled_from([0, 63, 64, 127, 128]), max_size=20)
ANY_IDS = (
    st.integers(0, 260)
    | st.sampled_from([-1, -64, 2**31, 2**32, 2**32 + 3, 2**62, 2**63 - 1, -(2**63)])
    | st.integers(-(2**63), 2**63 - 1)
)


@given(st.lists(ANY_IDS, max_size=70), SPECIAL, st.integers(0, 2), st.data())
def test_tells_special_tokens_as_the_oracle(guarded, ids, special, spare, data):
    ids += data.draw(st.lists(st.sampled_from(sorted(special)), max_size=9)) if special else []
    bits = bit_set(special, max(special, default=-1) // 64 + 1 + spare)
    members, source, out = guarded("uint64", len(bits)), guarded("int64", len(ids)), guarded("uint8", len(ids))
    members.array[:] = bits
    source.array[:] = ids
    expected = np.empty(len(ids), np.uint8)
    oracles.special_tokens(source.array, special, expected)
    host.special_tokens(source.address, len(ids), (members.address, len(bits)), out.address)
    assert out.holds(expected)


INT64 = st.integers(-(2**63), 2**63 - 1)


def flags(length):
    return st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 255]), min_size=length, max_size=length)


@st.composite
def offset_rows(draw):
    """Offsets that touch as often as not, and the flags of special tokens."""
    places, end = [], draw(st.sampled_from([-1, 0, 3]))
    for _ in range(draw(st.integers(0, 40))):
        start = draw(st.just(end) | st.integers(-2, 5) | INT64)
        end = draw(st.integers(-2, 5) | INT64)
        places.append((start, end))
    return places, draw(flags(len(places)))


@st.composite
def id_rows(draw):
    word_ids = draw(st.lists(st.integers(-2, 2) | INT64, max_size=40))
    return word_ids, draw(flags(len(word_ids)))


@given(offset_rows().map(lambda row: (True, *row)) | id_rows().map(lambda row: (False, *row)))
def test_word_starts_as_the_oracle(guarded, row):
    offsets, numbers, flags = row
    shape = (len(flags), 2) if offsets else (len(flags),)
    places, special, words = guarded("int64", shape), guarded("uint8", len(flags)), guarded("uint8", len(flags))
    places.array[:] = np.array(numbers, np.int64).reshape(shape)
    special.array[:] = flags
    expected = np.empty(len(flags), np.uint8)
    oracles.word_starts(places.array, special.array, expected)
    host.word_starts(places.address, offsets, special.address, len(flags), words.address)
    assert words.holds(expected)


KINDS = _core.kinds


def write_separate_rows(start, kind, value, out):
    start, value = np.array(start, np.int64), np.full(1, value, kind)
    where = start.ctypes.data, len(start)
    return host.separate_rows(where, KINDS.index(kind), value.ctypes.data, out.address, out.array.size)


@pytest.mark.parametrize("kind", KINDS)
@given(size=st.integers(1, 300), data=st.data())
def test_separate_rows_as_the_oracle(guarded, kind, *, size, data):
    start = data.draw(st.lists(st.integers(0, size - 1), max_size=20))
    value = True if kind == "bool" else data.draw(st.integers(0 if kind.startswith("u") else -100, 100))
    out = guarded(kind, (size,))
    expected = out.array.copy()
    oracles.separate_rows(start, value, expected)
    assert write_separate_rows(start, kind, value, out) is None
    assert out.holds(expected)


@pytest.mark.parametrize("bad", [-1, 5, 6, -(2**63), 2**63 - 1])
def test_refuses_a_start_outside(guarded, bad):
    out = guarded("int64", (5,))
    assert write_separate_rows([0, bad, 1], "int64", 7, out) == (_core.CODES.BAD_START, 1, -1)
    assert out.intact()


ROWS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20) | st.sampled_from([63, 64, 65])), max_size=8)


def write_fill_ends(start, lengths, kind, value, out):
    start, lengths, value = np.array(start, np.int64), np.array(lengths, np.int64), np.full(1, value, kind)
    where = (start.ctypes.data, len(lengths) + 1), lengths.ctypes.data
    size, inner = len(out.array), out.array.size // max(len(out.array), 1)
    return host.fill_ends(*where, inner, KINDS.index(kind), value.ctypes.data, out.address, size)


@pytest.mark.parametrize("kind", ["bool", "int16", "int32", "int64", "float64"])
@given(rows=ROWS, first=st.integers(0, 5), rest=st.integers(0, 9), inner=st.integers(1, 3))
def test_fill_ends_as_the_oracle(guarded, kind, *, rows, first, rest, inner):
    lengths = [length for length, _ in rows]
    start = [first + sum(length + gap for length, gap in rows[:row]) for row in range(len(rows) + 1)]
    out = guarded(kind, (start[-1] + rest, inner))
    expected = out.array.copy()
    oracles.fill_ends(start, lengths, 1, expected)
    assert write_fill_ends(start, lengths, kind, True if kind == "bool" else 1, out) is None
    assert out.holds(expected)


@pytest.mark.parametrize(
    ("start", "lengths", "failure"),
    [
        ([-1, 2], [0], (_core.CODES.BAD_START, 0, -1)),
        ([0, 5], [0], (_core.CODES.BAD_START, 0, -1)),
        ([0, 2, 1], [2, 0], (_core.CODES.BAD_START, 1, -1)),
        ([0, 2], [3], (_core.CODES.ROW_TOO_LONG, 0, -1)),
        ([0, 2], [-1], (_core.CODES.ROW_TOO_LONG, 0, -1)),
    ],
)
def test_refuses(guarded, start, lengths, failure):
    out = guarded("int64", (4,))
    assert write_fill_ends(start, lengths, "int64", 0, out) == failure
    assert out.untouched()
