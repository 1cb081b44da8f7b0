"""pack_rows, compiled, against its oracle."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import oracles
from quadrat import _core

FITS = {"best": _core.FITS.BEST, "first": _core.FITS.FIRST, "in_order": _core.FITS.IN_ORDER}
ROW_TOO_LONG, BAD_START, BAD_ARGUMENT = _core.CODES.ROW_TOO_LONG, _core.CODES.BAD_START, _core.CODES.BAD_ARGUMENT


def run(lengths, max_length, fit, *outputs, counts=None, max_count=0):
    lengths, counts = np.array(lengths, np.int64), None if counts is None else np.array(counts, np.int64)
    return _core.pack_rows(lengths, max_length, FITS[fit], *outputs, counts, max_count)


def packs_of(guarded, lengths, max_length, fit, **second):
    rows, offsets = guarded("int64", len(lengths)), guarded("int64", len(lengths) + 1)
    failure, count = run(lengths, max_length, fit, rows.array, offsets.array, **second)
    assert failure is None
    assert rows.intact()
    assert offsets.intact()
    bounds = offsets.array[: count + 1].tolist()
    return [rows.array[first:last].tolist() for first, last in pairwise(bounds)]


@st.composite
def rows_to_pack(draw):
    """Few lengths and many, of small packs, where ties abound, and of large ones, where a search climbs levels."""
    max_length = draw(
        st.integers(1, 40) | st.sampled_from([63, 64, 65, 4095, 4096, 5000, 2**18 + 1, _core.MOST_IN_PACK])
    )
    small = st.integers(0, min(max_length, 12))
    lengths = st.lists(st.integers(0, max_length) | small | st.just(max_length), max_size=80)
    return draw(lengths), max_length


@pytest.mark.parametrize("fit", FITS)
@given(case=rows_to_pack())
def test_as_the_oracle(guarded, fit, case):
    assert packs_of(guarded, *case, fit) == oracles.pack_rows(*case, fit)


@pytest.mark.parametrize("fit", ["best", "in_order"])
@given(data=st.data())
def test_with_counts_as_the_oracle(guarded, fit, data):
    max_length, max_count = data.draw(st.integers(1, 40) | st.just(4096)), data.draw(st.integers(0, 9) | st.just(70))
    rows = data.draw(
        st.lists(
            st.tuples(st.integers(0, max_length) | st.integers(0, min(max_length, 3)), st.integers(0, max_count)),
            max_size=60,
        )
    )
    lengths, counts = [length for length, _ in rows], [count for _, count in rows]
    expected = oracles.pack_rows(lengths, max_length, fit, counts, max_count)
    assert packs_of(guarded, lengths, max_length, fit, counts=counts, max_count=max_count) == expected


def test_many_rows_with_counts(guarded):
    draw = np.random.default_rng(0)
    rows = draw.integers(0, 300, 1500).tolist(), 1000, "best"
    second = {"counts": draw.integers(0, 6, 1500).tolist(), "max_count": 8}
    assert packs_of(guarded, *rows, **second) == oracles.pack_rows(*rows, **second)


@pytest.mark.parametrize(("counts", "code", "row"), [([1, 3, 4], ROW_TOO_LONG, 2), ([1, -1, 2], BAD_START, 1)])
@pytest.mark.parametrize("fit", ["best", "in_order"])
def test_names_the_first_row_whose_count_fits_no_pack(guarded, fit, counts, code, row):
    rows, offsets = guarded("int64", 3), guarded("int64", 4)
    assert run([1, 2, 3], 9, fit, rows.array, offsets.array, counts=counts, max_count=3) == ((code, row, -1), 0)
    assert rows.untouched()


@pytest.mark.parametrize(
    ("fit", "max_length", "max_count"), [("first", 9, 3), ("best", 9, -1), ("best", 9, 2**27), ("best", 2**26, 1)]
)
def test_needs_room_for_counts(guarded, fit, max_length, max_count):
    rows, offsets = guarded("int64", 1), guarded("int64", 2)
    assert run([1], max_length, fit, rows.array, offsets.array, counts=[0], max_count=max_count) == (
        (BAD_ARGUMENT, -1, -1),
        0,
    )


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(("rows", "longest"), [(1500, 50), (1100, 3000), (600, 2**22)])
def test_many_rows(guarded, fit, rows, longest):
    """Keys of more bits than one pass sorts by, packs in more than one node."""
    lengths = np.random.default_rng(rows).integers(0, longest + 1, rows).tolist()
    assert packs_of(guarded, lengths, longest, fit) == oracles.pack_rows(lengths, longest, fit)


@pytest.mark.parametrize("fit", FITS)
@given(lengths=st.lists(st.integers(0, 9), max_size=9), place=st.integers(0, 9), bad=st.sampled_from([-1, 10, 2**62]))
def test_names_the_first_row_that_fits_no_pack(guarded, fit, lengths, place, bad):
    lengths.insert(place, bad)
    rows, offsets = guarded("int64", len(lengths) + 1), guarded("int64", len(lengths) + 2)
    code = BAD_START if bad < 0 else ROW_TOO_LONG
    assert run([*lengths, -5], 9, fit, rows.array, offsets.array) == ((code, lengths.index(bad), -1), 0)
    assert rows.untouched()
    assert offsets.untouched()


def test_needs_room():
    for fit, max_length in [("best", 0), ("first", -3), ("in_order", 0), ("best", _core.MOST_IN_PACK + 1)]:
        assert run([], max_length, fit, np.empty(0, np.int64), np.empty(1, np.int64)) == ((BAD_ARGUMENT, -1, -1), 0)


@pytest.mark.parametrize("fit", [-1, 3, 256])
def test_refuses_what_is_no_way_to_fit(guarded, fit):
    lengths, rows, offsets = np.ones(1, np.int64), guarded("int64", 1), guarded("int64", 2)
    assert _core.pack_rows(lengths, 8, fit, rows.array, offsets.array) == ((BAD_ARGUMENT, -1, -1), 0)
    assert rows.untouched()
    assert offsets.untouched()


READ_ONLY = np.zeros(3, np.int64)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(
    ("error", "array"),
    [
        (ValueError, np.zeros(2, np.int64)),
        (ValueError, np.zeros(4, np.int64)),
        (ValueError, READ_ONLY),
        (TypeError, np.zeros(3, np.int32)),
        (TypeError, np.zeros(6, np.int64)[::2]),
        (TypeError, 0),
    ],
)
def test_refuses_arrays_of_another_size_or_type(fit, error, array):
    with pytest.raises(error):
        run([1, 2, 3], 8, fit, array, np.empty(4, np.int64))
