"""word_starts, compiled, against its oracle: from offsets and from word ids."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import oracles
from support.compiled import host

ANY = st.integers(-(2**63), 2**63 - 1)


def flags(length):
    return st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 255]), min_size=length, max_size=length)


@st.composite
def offset_rows(draw):
    """Offsets that touch as often as not, and the flags of special tokens."""
    places, end = [], draw(st.sampled_from([-1, 0, 3]))
    for _ in range(draw(st.integers(0, 40))):
        start = draw(st.just(end) | st.integers(-2, 5) | ANY)
        end = draw(st.integers(-2, 5) | ANY)
        places.append((start, end))
    return places, draw(flags(len(places)))


@st.composite
def id_rows(draw):
    word_ids = draw(st.lists(st.integers(-2, 2) | ANY, max_size=40))
    return word_ids, draw(flags(len(word_ids)))


def check(guarded, kernel, row, shape):
    places, special, words = guarded("int64", shape), guarded("uint8", len(row[1])), guarded("uint8", len(row[1]))
    places.array[:] = np.array(row[0], np.int64).reshape(shape)
    special.array[:] = row[1]
    expected = np.empty(len(row[1]), np.uint8)
    oracles.word_starts(places.array, special.array, expected)
    kernel(places.address, special.address, len(row[1]), words.address)
    assert np.array_equal(words.array, expected)
    assert words.intact()


@given(offset_rows())
def test_from_offsets_as_the_oracle(guarded, row):
    check(guarded, host.word_starts, row, (len(row[0]), 2))


@given(id_rows())
def test_from_word_ids_as_the_oracle(guarded, row):
    check(guarded, host.word_starts_of_ids, row, (len(row[0]),))
