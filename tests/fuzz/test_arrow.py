"""Arrow data of any type says what its values are in lists; offsets that were changed are refused, or lead nowhere."""

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quadrat.input.rows import rows_of
from support import samples
from support.arrow_parts import Streamed
from support.arrow_values import parts_of, pyarrow_tables, tables
from support.compare import assert_same_outcome, seeded

pytestmark = pytest.mark.filterwarnings("ignore")


def assert_collated_alike(name, framework, rows, table, *, calls):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference, collator = samples.pair(name, return_tensors=framework)
        for _ in range(calls):
            expected, expected_states = seeded(reference, [dict(row) for row in rows])
            got, states = seeded(collator, table)
            assert_same_outcome(expected, got)
            assert states == expected_states


@given(tables(), st.booleans())
def test_values_are_those_of_lists(made, streamed):
    table, rows = made
    assert repr(list(rows_of(Streamed(table) if streamed else table))) == repr(rows)


OFFSETS = st.integers(-2, 12) | st.sampled_from([-(2**31), 2**31 - 1, 2**31 - 2, 255, 256])


@given(tables(), st.data())
def test_changed_offsets_are_read_or_refused(made, data):
    table, _ = made
    with_offsets = [part for part in parts_of(table) if len(part.buffers) > 1 and part.schema.format[:1] in b"+uUzZ"]
    for _ in range(data.draw(st.integers(1, 3)) if with_offsets else 0):
        part = data.draw(st.sampled_from(with_offsets))
        place, offset = data.draw(st.integers(0, len(part.buffers[1]) - 1)), data.draw(OFFSETS)
        last = place == part.array.offset + part.array.length
        if last and part.schema.format[:1] != b"+":  # nothing else says how many characters there are
            offset = min(offset, int(part.buffers[1][place]))
        part.buffers[1][place] = offset
    try:
        rows = list(rows_of(table))
    except ValueError as error:
        assert "damaged" in str(error) or isinstance(error, UnicodeDecodeError)  # noqa: PT017
    else:
        assert all(type(row) is dict for row in rows)


@given(tables(), st.data())
def test_shorter_parts_are_read_or_refused(made, data):
    table, _ = made
    for _ in range(data.draw(st.integers(1, 2))):
        part = data.draw(st.sampled_from(parts_of(table)))
        part.array.length -= data.draw(st.integers(0, 3))
        part.array.null_count = data.draw(st.sampled_from([part.array.null_count, -1, 1]))
    try:
        rows = list(rows_of(table))
    except ValueError as error:
        assert "damaged" in str(error) or isinstance(error, UnicodeDecodeError)  # noqa: PT017
    else:
        assert all(type(row) is dict for row in rows)


@given(st.sampled_from(samples.BATCHES), tables())
def test_collated_as_lists(collators, made):
    table, rows = made
    assert_collated_alike(*collators, rows, table, calls=1)  # it can be read once


@given(pyarrow_tables())
def test_every_type_of_pyarrow(table):
    rows = list(rows_of(table))
    assert repr(rows) == repr(table.to_pylist())
    assert [list(map(type, row.values())) for row in rows] == [
        list(map(type, row.values())) for row in table.to_pylist()
    ]


@given(st.sampled_from(samples.BATCHES), pyarrow_tables())
def test_every_type_of_pyarrow_is_collated(collators, table):
    assert_collated_alike(*collators, table.to_pylist(), table, calls=2)
