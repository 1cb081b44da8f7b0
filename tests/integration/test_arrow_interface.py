"""Arrow data that contradicts itself is refused with the name of its column, and not read."""

import gc
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from quadrat.input.rows import rows_of
from support import samples
from support.arrow_parts import Part, Streamed, lists, numbers, table
from support.damaged_arrow import DAMAGES, ROWS, Sample
from support.isolated import ended


def test_what_is_whole_is_read():
    assert rows_of(Sample().table) == ROWS
    assert rows_of(Streamed(Sample().table)) == ROWS
    assert pa.table(Streamed(Sample().table)).to_pylist() == ROWS, "it is Arrow data to others as well"


@pytest.fixture(scope="module")
def outcomes():
    """The outcome of each damage, in processes of their own: a crash ends one, and another does the rest."""
    reports, left = {}, list(DAMAGES)
    while left:
        run = ended("-m", "support.damaged_arrow", *left)
        lines = run.stdout.splitlines()
        reports.update(zip(left, lines, strict=False))
        if len(lines) < len(left):
            reports[left[len(lines)]] = f"the process ended with {run.returncode}: {run.stderr[-300:]}"
        left = left[len(lines) + 1 :]
    return reports


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_refused(damage, outcomes):
    assert re.search(f"ValueError: .*{DAMAGES[damage][1]}", outcomes[damage]), outcomes[damage]


PARTS = ("table", "ids", "label", "text", "nested", "item", "inner", "innermost")
COUNTS = st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 3, 4, 2**62, 2**63 - 1])
FORMATS = st.sampled_from(
    [None, *b"+l +L +w:0 +w:1 +w:2 +w:-1 +w: u U z Z n b c S i l L f g e vu +s +m tdD d:9,2 ? +".split(), b""]
)


def spoil(draw, sample):
    """A change after which all that is read, if it is read, is still memory: `Part` leaves room."""
    part = getattr(sample, draw(st.sampled_from(PARTS)))
    what = draw(st.sampled_from(["format", "children", "buffers", "array", "offsets", "nulls", "gone"]))
    if what == "format":
        part.schema.format = draw(FORMATS)
    elif what == "children":
        left = [draw(st.sampled_from([child, child, None])) for child in part.parts]
        part.set_children(*left)
        part.array.n_children = draw(st.sampled_from([len(left), draw(COUNTS)]))
        part.schema.n_children = draw(st.integers(-2, len(left)))
    elif what == "buffers":
        part.set_buffers(*(draw(st.sampled_from([buffer, buffer, None])) for buffer in part.buffers))
        part.array.n_buffers = draw(st.sampled_from([len(part.buffers), draw(COUNTS)]))
    elif what == "array":
        part.array.null_count = draw(COUNTS)
        part.array.length, part.array.offset = draw(st.sampled_from([(1, 0), (2, 1), (4, 2), (-1, 0), (0, -1)]))
    elif what == "offsets" and len(part.buffers) > 1:
        values = draw(st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 6), min_size=1, max_size=9))
        part.buffers[1].view(np.int32)[: len(values)] = values
    elif what == "nulls" and part is not sample.table:
        part.buffers[0] = np.full(64, draw(st.integers(0, 255)))
        part.set_buffers(*part.buffers)
        part.array.null_count = draw(st.integers(-1, 4))
    elif what == "gone":
        draw(st.sampled_from([part.array, part.schema])).release = None


@given(st.data(), st.integers(1, 3), st.booleans())
def test_whatever_is_wrong_it_is_read_or_refused(data, changes, streamed):
    sample = Sample()
    for _ in range(changes):
        spoil(data.draw, sample)
    held = sample.table.array.release is not None, sample.table.schema.release is not None
    try:
        rows = list(rows_of(Streamed(sample.table) if streamed else sample.table))
    except (ValueError, TypeError):  # a TypeError for types without a form here
        rows = []
    assert all(isinstance(row, dict) for row in rows)
    gc.collect()
    if held == (True, True):
        assert sample.table.released() == ["Array", "Schema"]
    assert len(set(sample.table.released())) == len(sample.table.released())


@pytest.mark.parametrize("damage", ["offsets beyond the values", "no buffers", "a list without its child"])
def test_collators_refuse_it_too(damage):
    """In a batch of a kind that is known as in any other, and whether the column comes alone or in a table."""
    collator = samples.make(quadrat, "DataCollatorWithPadding")
    for _ in range(2):
        collator(table(Sample().ids, Sample().label))
        sample = Sample()
        DAMAGES[damage][0](sample)
        with pytest.raises(ValueError, match=r"column '(input_ids|label)'.*damaged"):
            collator(table(sample.ids, sample.label))
        sample = Sample()
        DAMAGES[damage][0](sample)
        with pytest.raises(ValueError, match=r"column '(input_ids|label)'.*damaged"):
            collator({"input_ids": sample.ids, "label": sample.label})


@pytest.mark.parametrize("damage", [name for name, (_, message) in DAMAGES.items() if "'nested', row" in message])
def test_rows_of_more_dimensions_are_refused_where_they_lie(damage):
    collator = quadrat.DefaultDataCollator()
    for _ in range(2):
        whole = table(Part("+l", 1, [None, np.array([0, 1], np.int32)], [lists([[1, 2]])], name="nested"))
        assert collator(whole)["nested"].tolist() == [[[1, 2]]]
        sample = Sample()
        DAMAGES[damage][0](sample)
        with pytest.raises(ValueError, match=DAMAGES[damage][1]):
            collator(table(sample.nested))


def test_damage_in_rows_that_are_not_read_does_not_matter():
    """Nothing but the rows of the batch is looked at: a scan would read the whole of a mapped file."""
    sample = Sample()
    DAMAGES["offsets beyond the values"][0](sample)
    rows = rows_of(table(sample.ids))
    batch = samples.make(quadrat, "DataCollatorWithPadding")(rows[:3])
    assert batch["attention_mask"].sum(1).tolist() == [3, 1, 0]


@pytest.mark.parametrize("given_as", [lambda part: part, Streamed], ids=["array", "stream"])
def test_what_was_taken_is_released_once(given_as):
    part = Sample().table
    rows = rows_of(given_as(part))
    assert part.released() == []
    del rows
    gc.collect()
    assert part.released() == ["Array", "Schema"]


def test_rows_that_are_there_though_nobody_counted():
    """A slice of structs whose null count is not known has a bitmap, and no null."""
    structs = pa.array([{"input_ids": [1]}, None, {"input_ids": [2, 3]}, {"input_ids": [4]}])
    assert rows_of(structs[2:]) == [{"input_ids": [2, 3]}, {"input_ids": [4]}]
    with pytest.raises(ValueError, match="null as a whole"):
        rows_of(structs[:2])


def test_nothing_may_lie_nowhere():
    """Buffers of no bytes may have no address."""
    empty = Part("l", 0, [None, None])
    column = Part("+l", 2, [None, np.zeros(3, np.int32)], [empty], name="input_ids")
    characters = Part("u", 2, [None, np.zeros(3, np.int32), None], name="text")
    assert rows_of(table(column, characters)) == [{"input_ids": [], "text": ""}] * 2
    assert rows_of(table(Part("u", 0, [None, None, None], name="text"), numbers([], "label"))) == []
