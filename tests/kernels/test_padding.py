"""Padding, attention masks and joined prompts, compiled, against their oracles: not a byte more, and no object."""

import sys

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import oracles
from quadrat import _core
from quadrat.support import columns as ingest
from quadrat.support import generators, memory
from quadrat.support.columns import BatchLayout
from support.ingest import INT64, columns_of

KINDS = _core.kinds
LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([63, 64, 65, 128, 257]), max_size=8)


@pytest.mark.parametrize("kind", KINDS)
@given(lengths=LENGTHS, extra=st.integers(0, 70), side=st.sampled_from(["right", "left"]))
def test_masks_as_the_oracle(interops, guarded, kind, *, lengths, extra, side):
    width = max(lengths, default=0) + extra
    out, expected = guarded(kind, (len(lengths), width)), np.empty((len(lengths), width), kind)
    oracles.attention_mask(lengths, side, expected)
    columns = columns_of([[0] * length for length in lengths], interops["exchange"])
    assert columns.attention_mask(0, out.address, KINDS.index(kind), width, side == "left") is None
    assert out.holds(expected)


@given(kind=st.sampled_from(KINDS), lengths=LENGTHS.filter(any), left=st.booleans(), data=st.data())
def test_refuses_a_width_below_a_row(interops, guarded, *, kind, lengths, left, data):
    width = data.draw(st.integers(0, max(lengths) - 1))
    out = guarded(kind, (len(lengths), width))
    first = next(row for row, length in enumerate(lengths) if length > width)
    columns = columns_of([[0] * length for length in lengths], interops["exchange"])
    assert columns.attention_mask(0, out.address, KINDS.index(kind), width, left) == (1, first, -1)
    written = out.array[:first]
    assert np.array_equal(written.sum(axis=1, dtype=int), lengths[:first])
    assert bool((out.array[first:].view(np.uint8) == 0xA5).all())
    assert out.intact()
    (columns, _values), padded = ragged(lengths, kind), guarded(kind, (len(lengths), width))
    assert columns.pad(0, padded.address, KINDS.index(kind), width, left, False) == (1, first, -1)
    assert padded.untouched()


def test_knows_its_columns_and_no_negative_width(interops, guarded):
    out, columns = guarded("int8", (1, 1)), columns_of([[1]], interops["exchange"])
    assert [columns.attention_mask(0, out.address, 1, width, False) for width in (-1, -(2**63))] == [(7, -1, -1)] * 2
    with pytest.raises(IndexError):
        columns.attention_mask(1, out.address, 1, 1, False)
    assert out.untouched()


INT32 = KINDS.index("int32")
SIDES = ["right", "left"]


def misfits_for(kind):
    """What a gap of this kind cannot be filled with."""
    never = st.sampled_from([None, "0", [0], 1j, object(), 2**70])
    if kind == "bool":
        return never | st.sampled_from([0, 1, 1.0])
    if kind.startswith("float"):
        return st.sampled_from([None, "0", [0.0], 1j, 10**400])
    info = np.iinfo(kind)
    beyond = st.integers(max_value=int(info.min) - 1) | st.integers(min_value=int(info.max) + 1)
    return never | st.floats() | beyond


def ragged(lengths, kind):
    """A column of zeros of these lengths, and the array it points into."""
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    values = np.zeros(int(offsets[-1]), kind)
    columns = _core.Columns()
    place = (values.ctypes.data, KINDS.index(kind), len(values), offsets.ctypes.data, len(lengths))
    columns.add_ragged(*place)
    return columns, values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", SIDES)
def test_large_outputs_are_filled_alike(guarded, kind, side):
    """And large attention masks."""
    # Past the caches, see csrc/kernels/bytes.hpp: rows begin and end anywhere in a cache line.
    width = (8 << 20) // np.dtype(kind).itemsize // 3 + 5
    lengths = [0, 1, width - 70, width - 3, width]
    columns, values = ragged(lengths, kind)
    values[:] = np.arange(len(values)) % 2
    out, expected = guarded(kind, (5, width)), np.ones((5, width), kind)
    mask, attended = guarded(kind, (5, width)), np.zeros((5, width), kind)
    rows = np.split(values, np.cumsum(lengths)[:-1])
    for row, target, ones in zip(rows, expected, attended, strict=True):
        place = slice(len(row)) if side == "right" else slice(width - len(row), width)
        target[place], ones[place] = row, 1
    assert columns.pad(0, out.address, KINDS.index(kind), width, side == "left", True) is None
    assert columns.attention_mask(0, mask.address, KINDS.index(kind), width, side == "left") is None
    assert out.holds(expected)
    assert mask.holds(attended)


@given(kind=st.sampled_from(KINDS), lengths=LENGTHS, extra=st.integers(1, 70), left=st.booleans(), data=st.data())
def test_refuses_a_value_that_does_not_fit(guarded, *, kind, lengths, extra, left, data):
    value = data.draw(misfits_for(kind))
    width = max(lengths, default=0) + extra
    columns, _values = ragged(lengths, kind)
    out = guarded(kind, (len(lengths), width))
    assert columns.pad(0, out.address, KINDS.index(kind), width, left, value) == (4, -1, -1)
    assert out.untouched()


@given(
    kind=st.sampled_from(KINDS), rows=st.integers(0, 6), length=st.integers(0, 70), left=st.booleans(), data=st.data()
)
def test_without_gaps_the_value_does_not_matter(guarded, *, kind, rows, length, left, data):
    columns, _values = ragged([length] * rows, kind)
    out = guarded(kind, (rows, length if rows else 0))
    width = length if rows else 0
    assert columns.pad(0, out.address, KINDS.index(kind), width, left, data.draw(misfits_for(kind))) is None
    assert out.holds(np.zeros_like(out.array))


@pytest.mark.parametrize("width", [-1, -(2**63), 2**60, 2**63 - 1])
def test_refuses_a_width_that_no_array_has(guarded, width):
    columns, _values = ragged([1, 2, 3], "int32")
    out = guarded("int32", (3, 3))
    assert columns.pad(0, out.address, KINDS.index("int32"), width, False, 0) == (7, -1, -1)
    assert out.untouched()


def read(features, out, interop):
    """Collects and writes; what fails on the way is part of the result."""
    collected = _core.collect(features, ("ids", "mask"), interop)
    if collected is None:
        return None
    _, columns = collected
    return columns.signature(0, 4), [columns.pad(i, out.address, INT32, 4, True, 0) for i in range(len(columns))]


IDS = [[1001, 1002, 1003], tuple(range(1004, 1006)), np.array([6, 7]), torch.tensor([8])]
BROKEN = {
    "nothing": IDS,
    "a value that does not fit": [*IDS, [1006, 2**40]],
    "a number of another kind": [*IDS, [1007, None]],
    "no row": [*IDS, "text"],
    "a row too long": [*IDS, [1, 2, 3, 4, 5]],
    "no conversion": [*IDS, np.zeros(2)],
    "a missing name": [*IDS, ...],
}


@pytest.mark.parametrize("way", ["exchange", "fallback"])
@pytest.mark.parametrize("ids", BROKEN.values(), ids=BROKEN.keys())
def test_keeps_no_reference(interops, guarded, way, ids):
    features = [{"ids": row, "mask": row} if row is not ... else {"ids": [1]} for row in ids]
    out = guarded("int32", (5, 4))
    numbers = [number for row in ids if type(row) in (list, tuple) for number in row if number is not None]
    watched = [features, *features, *ids, *(number for number in numbers if number > 1000)]
    before = [sys.getrefcount(value) for value in watched]
    results = [read(features, out, interops[way]) for _ in range(3)]
    assert results[0] == results[2]
    assert [sys.getrefcount(value) for value in watched] == before
    columns = _core.collect(features[:4], ("ids",), interops[way])
    after = [sys.getrefcount(row) for row in IDS]
    del columns
    assert after == [sys.getrefcount(row) + 1 for row in IDS], "rows live as long as their columns"
    assert [sys.getrefcount(value) for value in watched] == before


PARTS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5)
STEPS = (
    ("ids", 0, ingest.CHAIN, INT64),
    ("mask", 0, ingest.CHAIN_MASK, INT64),
    ("marks", 0, ingest.CHAIN_MARKS, INT64),
)


@given(st.integers(1, 3), st.booleans(), st.integers(1, 4), st.data())
def test_chains(completions, prompts, multiple, data):
    count = data.draw(st.integers(0, 4))
    parts = st.lists(PARTS, min_size=count, max_size=count)
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
        failure = columns.run(STEPS, {"ids": -7}, memory.interop(), False, layout._replace(total=longest - 1))
        assert isinstance(failure, tuple)


@given(st.lists(PARTS, max_size=5), st.integers(0, 7), st.booleans(), st.booleans())
def test_row_positions(rows, width, left, goes_on):
    columns = columns_of(rows, memory.interop())
    layout = BatchLayout(width, left=left, continue_positions=goes_on)
    batch = columns.run((("p", 0, ingest.ROW_POSITIONS, INT64),), {}, memory.interop(), False, layout)
    if max(map(len, rows), default=0) > width:
        assert isinstance(batch, tuple)
        return
    for row, positions in zip(rows, batch["p"].tolist(), strict=True):
        gap, padding = width - len(row), len(row) if goes_on and not left else 0
        padded = [position if goes_on else 0 for position in range(padding, padding + gap)]
        assert positions == ([*padded, *range(len(row))] if left else [*range(len(row)), *padded])


MASKED = _core.MaskedLabels(generators.TORCH, torch.Generator(), 0.5, (0.8, 0.5, 3, 9), [], special=1)


@pytest.mark.parametrize("length", [0, 2])
@pytest.mark.parametrize("labels", [_core.KeptLabels(1), MASKED])
def test_numbers_beside_the_ids_have_no_dimensions(interops, labels, length):
    """There is room for one a token."""
    columns = columns_of([[5] * length] * 3, interops["exchange"])
    columns.add_values([np.ones((length, 4000), np.int64)] * 3, interops["exchange"])
    steps = (("ids", 0, ingest.PAD, INT64), ("labels", 0, ingest.LABELS, INT64))
    batch = columns.run(steps, {"ids": 0, "labels": labels}, memory.interop(), False, BatchLayout(9))
    assert batch[:2] in ((1, ingest.WRONG_TYPE), (1, _core.CODES.WRONG_LENGTH))
