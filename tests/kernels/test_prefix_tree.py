"""prefix_tree, compiled, against its oracle."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given

import oracles
from quadrat import _core
from quadrat.ops.prefix_tree import prefix_tree
from support.masks import masks

BAD_START, BAD_ARGUMENT = _core.CODES.BAD_START, _core.CODES.BAD_ARGUMENT
EXTREME = st.sampled_from([0, -1, 2**63 - 1, -(2**63)])


@st.composite
def alike(draw):
    """Rows that begin as those before them do, for some tokens, or wholly; ids of two kinds, of many, and extreme."""
    token = draw(st.sampled_from([st.integers(0, 1), st.integers(0, 50), EXTREME]))
    rows = []
    for _ in range(draw(st.integers(0, 12))):
        before = draw(st.sampled_from(rows)) if rows and draw(st.booleans()) else []
        kept = before[: draw(st.integers(0, len(before)))]
        rows.append(kept + draw(st.lists(token, max_size=4)) * draw(st.sampled_from([1, 1, 9])))
    return draw(st.permutations(rows))


def build(guarded, ids, positions, offsets, shortest):
    ids, offsets = np.array(ids, np.int64), np.array(offsets, np.int32)
    places = None if positions is None else np.array(positions, np.int64)
    rows = max(0, len(offsets) - 1)
    nodes, tokens, cells = (guarded("int64", shape) for shape in ((2 * rows, 4), len(ids), len(ids)))
    failure, count, total = _core.prefix_tree(
        (ids.ctypes.data, len(ids)), 0 if places is None else places.ctypes.data, (offsets.ctypes.data, len(offsets)),
        shortest, nodes.address, tokens.address, cells.address,
    )  # fmt: skip
    assert all(out.intact() for out in (nodes, tokens, cells))
    if failure is not None:
        assert all(out.untouched() for out in (nodes, tokens, cells))
        return failure
    return [*map(tuple, nodes.array[:count].tolist())], tokens.array.tolist(), cells.array[:total].tolist()


@given(alike(), st.data(), st.sampled_from([1, 1, 2, 5, 2**62]))
def test_prefix_tree_as_the_oracle(guarded, rows, data, shortest):
    ids, offsets, positions = [token for row in rows for token in row], np.cumsum([0, *map(len, rows)]), None
    if data.draw(st.booleans()):
        starts = [data.draw(st.sampled_from([0, 0, 3])) for _ in rows]
        rows = [[(token, start + i) for i, token in enumerate(row)] for row, start in zip(rows, starts, strict=True)]
        positions = [place for row in rows for _, place in row]
    expected = oracles.prefix_tree(rows, shortest)
    assert build(guarded, ids, positions, offsets, shortest) == expected


@given(alike(), st.data(), st.integers(-(2**31), 2**31 - 1))
def test_offsets_of_no_rows(guarded, rows, data, number):
    ids, offsets = [token for row in rows for token in row], np.cumsum([0, *map(len, rows)])
    place = data.draw(st.integers(0, len(rows)))
    offsets[place] = number
    steps = [end < begin or end > len(ids) for begin, end in pairwise(offsets)]
    if offsets[0] != 0 or any(steps) or offsets[-1] != len(ids):
        row = 0 if offsets[0] != 0 else steps.index(True) if any(steps) else len(rows)
        assert build(guarded, ids, None, offsets, 1) == (BAD_START, row, -1)


def test_arguments_no_batch_has(guarded):
    assert build(guarded, [], None, [], 1) == (BAD_ARGUMENT, -1, -1)
    assert build(guarded, [1], None, [0, 1], 0) == (BAD_ARGUMENT, -1, -1)


@given(masks(), st.data(), st.sampled_from([torch.int64, torch.int32]), st.sampled_from([1, 4]))
def test_a_padded_batch(mask, data, dtype, shortest):
    """Padding anywhere in a row belongs to no node; a flat token stands for cells that have its id and position."""
    ids = torch.from_numpy(np.random.default_rng(data.draw(st.integers(0, 9))).integers(0, 2, mask.shape)).to(dtype)
    places = torch.from_numpy(mask != 0).cumsum(1) - 1 if data.draw(st.booleans()) else None
    tree = prefix_tree(ids, torch.from_numpy(mask), places, shortest=shortest)
    rows = [row[kept].tolist() for row, kept in zip(ids, torch.from_numpy(mask != 0), strict=True)]
    nodes, tokens, cells = oracles.prefix_tree(rows, shortest)
    assert torch.stack(tree[:4], 1).tolist() == [list(node) for node in nodes]
    assert tree.kept.tolist() == np.flatnonzero(mask).tolist()
    assert tree.token_of_cell.tolist() == tokens
    assert tree.cell_of_token.tolist() == tree.kept[cells].tolist()
    assert tree.total == len(cells)
    assert torch.equal(ids.flatten()[tree.cell_of_token][tree.token_of_cell], ids.flatten()[tree.kept])
