"""Oracles of the kernels for attention that is told where rows begin."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def document_blocks(
    offsets: Sequence[int], total: int, reach: tuple[int, int], size: tuple[int, int], outs: Sequence[Array]
) -> None:
    """Write which blocks of a document mask are partial and which are full.

    `outs`: the partial ones' counts, `[rows]`, and columns, `[rows, columns]`, those that are not partial last; then
    the same of the full ones. A token sees `reach[0]` tokens of its document before itself and `reach[1]` after.
    """
    bounds = [*offsets, total]
    document = np.zeros(total, np.int64)
    for number in range(len(bounds) - 1):
        document[bounds[number] : bounds[number + 1]] = number
    rows, columns = (-(-total // one) for one in size)
    mask = np.zeros((rows * size[0], columns * size[1]), bool)
    for token in range(total):
        for other in range(total):
            near = -reach[0] <= other - token <= reach[1]
            mask[token, other] = near and document[token] == document[other]
    cells = [[mask[i * size[0] :, j * size[1] :][: size[0], : size[1]] for j in range(columns)] for i in range(rows)]
    full = [[bool(cell.all()) for cell in row] for row in cells]
    partial = [[bool(cell.any() and not cell.all()) for cell in row] for row in cells]
    for (counts, listed), chosen in zip((outs[:2], outs[2:]), (partial, full), strict=True):
        for row, flags in enumerate(chosen):
            counts[row] = sum(flags)
            listed[row] = [i for i in range(columns) if flags[i]] + [i for i in range(columns) if not flags[i]]


def fill_ends(start: Sequence[int], lengths: Sequence[int], value: Any, out: Array) -> None:
    """Write `value` to flat `out` behind each row: row i begins at `start[i]`, its place ends at `start[i + 1]`."""
    for row, length in enumerate(lengths):
        for place in range(start[row] + length, start[row + 1]):
            out[place] = value


def prefix_tree(
    rows: Sequence[Sequence[Hashable]], shortest: int
) -> tuple[list[tuple[int, int, int, int]], list[int], list[int]]:
    """The nodes of a tree of rows, the flat token of each cell, and the first cell of each flat token.

    A node: its first token, how many there are, its parent, and the tokens of its ancestors. Below a node, rows are in
    one group if their next `shortest` tokens are the same; what all of a group have in common is a node.
    """
    nodes: list[tuple[int, int, int, int]] = []
    first_cell = [0, *np.cumsum([len(row) for row in rows]).tolist()]
    token_of_cell, cell_of_token = [-1] * first_cell[-1], list[int]()

    def grow(members: Sequence[int], depth: int, parent: int) -> None:
        groups: dict[Hashable, list[int]] = {}
        for row in members:
            beginning = tuple(rows[row][depth : depth + shortest])
            if beginning:
                groups.setdefault(beginning if len(beginning) == shortest else row, []).append(row)
        for group in groups.values():
            least = min(len(rows[row]) for row in group)
            end = next((at for at in range(depth, least) if len({rows[row][at] for row in group}) > 1), least)
            start, node = len(cell_of_token), len(nodes)
            nodes.append((start, end - depth, parent, depth))
            cell_of_token.extend(range(first_cell[group[0]] + depth, first_cell[group[0]] + end))
            for row in group:
                token_of_cell[first_cell[row] + depth : first_cell[row] + end] = range(start, len(cell_of_token))
            grow(group, end, node)

    grow(range(len(rows)), 0, -1)
    return nodes, token_of_cell, cell_of_token
