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


def run(lengths, max_length, fit, rows, offsets):
    lengths = np.array(lengths, np.int64)
    return _core.pack_rows(lengths, max_length, FITS[fit], rows, offsets)


def packs_of(guarded, lengths, max_length, fit):
    rows, offsets = guarded("int64", len(lengths)), guarded("int64", len(lengths) + 1)
    failure, count = run(lengths, max_length, fit, rows.array, offsets.array)
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


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(("rows", "longest"), [(1500, 50), (1100, 3000), (600, 2**22)])
def test_many_rows(guarded, fit, rows, longest):
    """More rows than are sorted by comparing, keys of more bits than one pass sorts by, packs in more than one node."""
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
