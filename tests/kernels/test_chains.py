"""Prompts joined to completions, and positions in padded rows == a loop over the rows."""

from hypothesis import given
from hypothesis import strategies as st

from quadrat.input import columns as ingest
from quadrat.planning.plan import BatchLayout
from quadrat.support import memory
from support.ingest import INT64, columns_of

ROWS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5)
STEPS = (
    ("ids", 0, ingest.CHAIN, INT64),
    ("mask", 0, ingest.CHAIN_MASK, INT64),
    ("marks", 0, ingest.CHAIN_MARKS, INT64),
)


@given(st.integers(1, 3), st.booleans(), st.integers(1, 4), st.data())
def test_chains(completions, prompts, multiple, data):
    count = data.draw(st.integers(0, 4))
    parts = st.lists(ROWS, min_size=count, max_size=count)
    values = data.draw(st.lists(parts, min_size=completions + prompts, max_size=completions + prompts))
    columns = columns_of(values[0], memory.interop())
    for column in values[1:]:
        columns.add_values(column, memory.interop())
    before = values[0] if prompts else [[]] * count
    rows = [(before[i], part[i]) for part in values[prompts:] for i in range(count)]
    longest = max((len(prompt) + len(row) for prompt, row in rows), default=0)
    width = -(-longest // multiple) * multiple
    layout = BatchLayout(multiple_of=multiple, completions=completions, prompts=prompts)
    batch = columns.run(STEPS, {"ids": -7}, memory.interop(), False, layout)
    assert batch["ids"].shape == batch["mask"].shape == batch["marks"].shape == (len(rows), width)
    for i, (prompt, row) in enumerate(rows):
        gap = width - len(prompt) - len(row)
        assert batch["ids"][i].tolist() == [*prompt, *row, *[-7] * gap]
        assert batch["mask"][i].tolist() == [1] * (width - gap) + [0] * gap
        assert batch["marks"][i].tolist() == [0] * len(prompt) + [1] * len(row) + [0] * gap
    if longest > 1:
        assert isinstance(
            columns.run(STEPS, {"ids": -7}, memory.interop(), False, layout._replace(total=longest - 1)), tuple
        )


@given(st.lists(ROWS, max_size=5), st.integers(0, 7))
def test_row_positions(rows, width):
    columns = columns_of(rows, memory.interop())
    made = columns.run((("p", 0, ingest.ROW_POSITIONS, INT64),), {}, memory.interop(), False, BatchLayout(width))
    if max(map(len, rows), default=0) > width:
        assert isinstance(made, tuple)
    else:
        assert made["p"].tolist() == [[*range(len(row)), *[0] * (width - len(row))] for row in rows]
